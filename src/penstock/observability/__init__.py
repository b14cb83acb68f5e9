"""Files for the tools that watch a cluster: Grafana dashboards, alert rules, scrape settings.

Data only, in the formats of those tools; `penstock generate` prints them, and `deploy/` of the
repository links to them. Tests look up every query's metrics and labels in the catalogue, so a
metric that is renamed cannot leave a dashboard behind.
"""
