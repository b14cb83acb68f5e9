"""Runs state machines on replicated internal topics, and reaches those of other nodes."""
