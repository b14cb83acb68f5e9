"""Which records a reader sees: the isolation levels of Fetch and ListOffsets (KIP-98)."""

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
"""Nothing of transactions that are open or were aborted."""
