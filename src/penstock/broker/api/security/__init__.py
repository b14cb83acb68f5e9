"""Logins, users, access control lists and quotas as Kafka APIs."""
