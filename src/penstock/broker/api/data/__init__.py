"""Data path of the Kafka protocol: Produce, Fetch, Metadata and requests about logs."""
