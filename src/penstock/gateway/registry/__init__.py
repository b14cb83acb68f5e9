"""Confluent's Schema Registry REST API on the node's HTTP port."""
