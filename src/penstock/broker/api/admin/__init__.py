"""Topics, configs, cluster and elections: what administrators and other nodes ask."""
