"""Produce, fetch and what clients ask about logs: the data path of the Kafka protocol."""
