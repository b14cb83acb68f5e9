"""Producer: batches, a queue for each partition, retries, idempotence and transactions."""
