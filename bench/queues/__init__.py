"""Benchmarks of Penstock as a work queue: RabbitMQ, NATS JetStream and SQS emulators as peers."""
