"""Work queues as machines without I/O: who gets which record, when, and what becomes of it."""
