"""Penstock: a distributed message queue in Python that any Kafka client can use."""

__version__ = "0.1.0"
