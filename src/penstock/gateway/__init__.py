"""Endpoints besides Kafka's: REST, SQS, SNS, schema registry and console."""
