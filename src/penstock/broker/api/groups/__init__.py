"""Coordinator APIs of Kafka: groups, committed offsets and transactions."""
