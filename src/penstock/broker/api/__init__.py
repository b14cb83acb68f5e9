"""Handlers of Kafka APIs: one function per API, one folder per family; `routes` lists all."""
