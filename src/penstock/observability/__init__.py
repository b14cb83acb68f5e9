"""What watches a cluster from outside: Grafana dashboards, alert rules, scrape settings.

Made in Python and printed by `penstock generate`; a test reads every query and looks up its metrics
and labels in the catalogue, so a metric that is renamed cannot leave a dashboard behind.
"""
