"""Administrative APIs: topics, configs, cluster and elections."""
