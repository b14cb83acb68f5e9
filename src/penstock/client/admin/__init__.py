"""Administration of a cluster: topics, groups, access, quotas, queues, transactions."""
