"""Our messages against an independent implementation of Kafka's own definitions."""
