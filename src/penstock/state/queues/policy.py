"""Delivery policy of one queue: order, leases, attempts, backoff.

A plain value; the host of the state machines makes it from the group's and the topic's configs.
"""

import enum
from dataclasses import dataclass

PRIORITY_MAX = 9
TOGETHER_MS = 100
"""Maximum extra delay of a retry, to be due together with others."""


class Order(enum.Enum):
    NONE = "none"
    KEY = "key"
    """One record of each key at a time, in log order."""
    PARTITION = "partition"
    """One record at a time, in log order."""


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    order: Order = Order.NONE
    lock_ms: int = 30_000
    """Duration of a lease (`share.record.lock.duration.ms`)."""
    deliveries_max: int = 5
    """Maximum deliveries; after them a record is dead-lettered."""
    backoff_base_ms: int = 1_000
    backs_off_always: bool = True
    """True if all failures back off; else only those whose member requests it."""
    backoff_cap_ms: int = 60_000
    locks_max: int = 200_000
    """Maximum records in flight."""
    entries_max: int = 2_000_000
    """Maximum entries in memory: runs, leases, delays, key queues. Beyond it no records arrive."""
    dead_letters: bool = True
    """True if failed records are dead-lettered; else they are only finished."""
    dead_letter_expired: bool = True
    """True if expired records are dead-lettered, too."""

    def retry_at_ms(self, offset: int, count: int, now_ms: int, *, is_patient: bool) -> int:
        """Time of the next delivery of a record that failed now, for the `count`-th time.

        Retries that are due at about the same time are aligned: each due time causes work for all
        waiting members.
        """
        if not (is_patient or self.backs_off_always):
            return now_ms
        pause_ms = self.backoff_ms(offset, count)
        step_ms = max(1, min(TOGETHER_MS, pause_ms // 8))
        return -(-(now_ms + pause_ms) // step_ms) * step_ms

    def backoff_ms(self, offset: int, delivery_count: int) -> int:
        """Backoff after the `delivery_count`-th failure.

        The jitter is up to one base, spread by a hash of the offset: state machines have no
        randomness, and records that failed together need not be retried together.
        """
        if not self.backoff_base_ms:
            return 0
        exponent = min(max(delivery_count - 1, 0), 62)
        grown = min(self.backoff_cap_ms, self.backoff_base_ms << exponent)
        mixed = (offset * 0x9E3779B97F4A7C15 + delivery_count * 0xBF58476D1CE4E5B9) >> 32
        return grown + mixed % self.backoff_base_ms
