"""Sources: topics as batches and streams, queues as streams."""
