"""What the transaction machines are told from outside: settings and the caller's version."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TxnConfig:
    """Kafka's transaction settings, by their meaning."""

    timeout_ms_max: int = 900_000
    """transaction.max.timeout.ms: producers may not ask for more."""
    expiration_ms: int = 7 * 24 * 3_600_000
    """transactional.id.expiration.ms: an id that is idle so long is forgotten."""
    expiration_check_interval_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms."""
    ids_max: int = 1_000_000
    """Transactional ids in one shard; further ones are refused with POLICY_VIOLATION."""
    partitions_max: int = 20_000
    """Partitions in one transaction; further ones are refused with INVALID_REQUEST.

    The whole list is in every record of a transaction, which must fit one batch.
    """


class TransactionCaller(Protocol):
    """Who asks: here only the version of the API that is spoken counts."""

    @property
    def api_version(self) -> int: ...
