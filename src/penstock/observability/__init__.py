"""Grafana dashboards, alert rules and scrape settings for monitoring a cluster.

Data only, in the formats of those tools; `penstock generate` prints them, and `deploy/` of the
repository links to them. Tests look up every query's metrics and labels in the catalogue, so a
renamed metric cannot leave a stale dashboard.
"""
