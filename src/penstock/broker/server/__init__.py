"""Sockets of the Kafka endpoint: connections, TLS, flow control and limits."""
