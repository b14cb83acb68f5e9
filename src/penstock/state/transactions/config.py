"""Inputs of the transaction state machines: settings and the caller's API version."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TxnConfig:
    """Kafka's transaction settings, named by their meaning."""

    timeout_ms_max: int = 900_000
    """transaction.max.timeout.ms: upper bound for producers."""
    expiration_ms: int = 7 * 24 * 3_600_000
    """transactional.id.expiration.ms: an id that is idle for this time is deleted."""
    expiration_check_interval_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms."""
    ids_max: int = 1_000_000
    """Maximum transactional ids in one shard; further ones are refused with POLICY_VIOLATION."""
    partitions_max: int = 20_000
    """Maximum partitions in one transaction; further ones are refused with INVALID_REQUEST.

    Every record of a transaction contains the whole list, and must fit one batch.
    """


class TransactionCaller(Protocol):
    """The caller; only its API version matters here."""

    @property
    def api_version(self) -> int: ...
