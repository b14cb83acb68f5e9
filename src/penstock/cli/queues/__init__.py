"""`penstock queue` and `penstock dlq`: queues and dead-letter queues."""
