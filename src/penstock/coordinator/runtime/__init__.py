"""Runtime of state machines on replicated internal topics, and calls to those of other nodes."""
