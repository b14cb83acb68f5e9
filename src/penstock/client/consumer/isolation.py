"""Isolation levels of Fetch and ListOffsets (KIP-98)."""

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
"""Hides records of open and aborted transactions."""
