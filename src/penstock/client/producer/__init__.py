"""Sending records: batches, partition queues, retries, idempotence and transactions."""
