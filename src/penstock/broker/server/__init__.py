"""Bytes in, bytes out: Kafka connections, their flow control and their limits."""
