"""How one queue treats its records: order, leases, attempts, backoff.

A plain value; whoever hosts the machines makes it from the group's and the topic's configs.
"""

import enum
from dataclasses import dataclass

PRIORITY_MAX = 9
TOGETHER_MS = 100
"""Retries wait up to so much longer, to be due together."""


class Order(enum.Enum):
    NONE = "none"
    KEY = "key"
    """Of each key one record at a time, in the order of the log."""
    PARTITION = "partition"
    """One record at a time, in the order of the log."""


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    order: Order = Order.NONE
    lock_ms: int = 30_000
    """How long a lease lasts (`share.record.lock.duration.ms`)."""
    deliveries_max: int = 5
    """After so many deliveries a record goes to the dead letters."""
    backoff_base_ms: int = 1_000
    backs_off_always: bool = True
    """True if all failures wait; else only those whose member asks for it."""
    backoff_cap_ms: int = 60_000
    locks_max: int = 200_000
    """Records in flight at a time."""
    entries_max: int = 2_000_000
    """What the machine keeps in memory: runs, leases, delays, lines. Beyond it, no arrivals."""
    dead_letters: bool = True
    """Whether a record that is given up is copied; else it is only finished."""
    bury_expired: bool = True
    """The same for records that expired."""

    def retry_at_ms(self, offset: int, count: int, now_ms: int, *, is_patient: bool) -> int:
        """When a record may be delivered again that failed now, for the `count`-th time.

        Those that come back at about the same time come back together: each moment that something
        is due is work for everybody who waits.
        """
        if not (is_patient or self.backs_off_always):
            return now_ms
        pause_ms = self.backoff_ms(offset, count)
        step_ms = max(1, min(TOGETHER_MS, pause_ms // 8))
        return -(-(now_ms + pause_ms) // step_ms) * step_ms

    def backoff_ms(self, offset: int, delivery_count: int) -> int:
        """How long a record waits after its `delivery_count`-th failure.

        The jitter is up to one base, spread by a hash of the offset: machines have no randomness,
        and records that failed together need not come back together.
        """
        if not self.backoff_base_ms:
            return 0
        exponent = min(max(delivery_count - 1, 0), 62)
        grown = min(self.backoff_cap_ms, self.backoff_base_ms << exponent)
        mixed = (offset * 0x9E3779B97F4A7C15 + delivery_count * 0xBF58476D1CE4E5B9) >> 32
        return grown + mixed % self.backoff_base_ms
