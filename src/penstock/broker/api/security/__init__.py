"""Kafka APIs of authentication, users, ACLs and quotas."""
