"""Penstock as a work queue beside RabbitMQ, NATS JetStream and stand-ins for SQS."""
