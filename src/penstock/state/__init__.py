"""State machines without I/O: groups, transactions, queues and the schema registry."""
