"""Settings of one log: Kafka's topic configs with Kafka's meaning, already parsed and bounded.

`penstock.cluster.configs.effective_configs` owns names, defaults and validation; this is the log's
view of them. A changed config takes effect at the next append, roll, retention or compaction pass.
"""

from dataclasses import dataclass

SEGMENT_BYTES_MAX = 2**31 - 1
"""Size limit of a segment: positions fit 32 bits, in the index and in Kafka's own tools."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 * 1024 * 1024
    retention_ms: int = 7 * 24 * 3600 * 1000
    """-1: no limit by age."""
    retention_bytes: int = -1
    """-1: no limit by size."""
    cleanup_delete: bool = True
    cleanup_compact: bool = False
    delete_retention_ms: int = 24 * 3600 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    min_cleanable_dirty_ratio: float = 0.5
    message_bytes_max: int = 1024 * 1024 + 12
    file_delete_delay_ms: int = 60_000
    producer_expiration_ms: int = 24 * 3600 * 1000
    encrypted: bool = False
    """True while new batches are to be stored encrypted; see `encryption.log_encryption`."""
    page_cache: bool = False
    """True while batches are acknowledged when written, before the sync: a power cut may lose the
    tail."""

    def __post_init__(self) -> None:
        assert 0 < self.segment_bytes <= SEGMENT_BYTES_MAX
        assert self.index_interval_bytes >= 0
        assert self.segment_index_bytes > 0
        assert self.segment_ms > 0
