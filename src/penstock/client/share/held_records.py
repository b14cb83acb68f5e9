"""The records that a member of a share group holds: fetched ahead, and handed out. Pure.

A record that was handed out is renewed at half its lease, until it has a verdict or its time is up.
One that nobody takes goes back: at half its lease, or sooner when nobody asks any more. If a record
comes again while its earlier delivery is still worked on, that one is lost: the broker would take
its verdict for one about the new delivery.
"""

from collections import deque
from collections.abc import Iterable

from penstock.client.metadata import TopicPartition
from penstock.client.share.leases import HeldLease

LEFTOVER_S = 1.0
"""How long records wait that came too late for whoever asked."""
UNASKED_S = 5.0
"""How long records that were fetched ahead wait while nobody asks."""


class HeldRecords:
    """Time comes in as the loop's."""

    def __init__(self) -> None:
        self._buffer: deque[HeldLease] = deque()
        self._taken: dict[tuple[TopicPartition, int], HeldLease] = {}

    def __len__(self) -> int:
        return len(self._buffer) + len(self._taken)

    @property
    def waiting(self) -> int:
        """Records that nobody has taken yet."""
        return len(self._buffer)

    def add(self, leases: Iterable[HeldLease]) -> None:
        for lease in leases:
            earlier = self._taken.pop((lease.where, lease.message.offset), None)
            if earlier is not None:
                earlier.is_lost = True
            self._buffer.append(lease)

    def take(self, records_max: int, now: float, renew_for_s: float) -> list[HeldLease]:
        """Hands out records, those that came first."""
        taken: list[HeldLease] = []
        while self._buffer and len(taken) < records_max:
            lease = self._buffer.popleft()
            if lease.deadline <= now or lease.is_lost:
                continue  # It ran out while nobody asked; the broker delivers it again.
            lease.renew_until = now + renew_for_s
            self._taken[lease.where, lease.message.offset] = lease
            taken.append(lease)
        return taken

    def settle(self, lease: HeldLease) -> None:
        """There is a verdict: it is no longer ours to renew."""
        lease.is_settled = True
        self._drop(lease)

    def lose(self, lease: HeldLease) -> None:
        """The broker says that it is not ours."""
        lease.is_lost = True
        self._drop(lease)

    def _drop(self, lease: HeldLease) -> None:
        key = (lease.where, lease.message.offset)
        if self._taken.get(key) is lease:
            del self._taken[key]

    def due(self, now: float) -> list[HeldLease]:
        """What was handed out and must be renewed now."""
        return [
            lease
            for lease in self._taken.values()
            if not lease.is_renewing
            and now < lease.renew_until
            and lease.deadline - now < lease.lock_s / 2
        ]

    def remove_stale(self, now: float, unasked_s: float, *, is_ahead: bool) -> list[HeldLease]:
        """Takes out what others should have. `unasked_s`: how long nobody has asked here."""
        limit_s = UNASKED_S if is_ahead else LEFTOVER_S
        stale: list[HeldLease] = []
        kept: deque[HeldLease] = deque()
        for lease in self._buffer:
            age_s = lease.lock_s - (lease.deadline - now)
            is_stale = age_s > lease.lock_s / 2 or min(age_s, unasked_s) > limit_s
            (stale if is_stale else kept).append(lease)
        self._buffer = kept
        return stale

    def remove_waiting(self) -> list[HeldLease]:
        """Takes out all that nobody has taken."""
        found = list(self._buffer)
        self._buffer.clear()
        return found

    def clear(self) -> None:
        self._buffer.clear()
        self._taken.clear()
