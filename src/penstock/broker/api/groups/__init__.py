"""Consumer groups, committed offsets and transactions: Kafka's coordinator APIs."""
