"""Leased records of a share consumer, and their decoding from a share fetch (KIP-932).

A share fetch returns whole batches and the ranges of acquired offsets in them. Offsets of a range
without record (compaction, control records) are gaps: they are acknowledged as gaps and are not
delivered.

Records that a share consumer holds: prefetched, or received by a caller. Pure. The lease of a
received record is renewed at half its duration, until the record is settled or its renewal time
ends. A record that no caller takes is released: at half its lease, or sooner if `receive` is not
called any more. If a record is delivered again while a caller holds its earlier delivery, the
earlier one is lost: the broker would apply its acknowledgement to the new delivery.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.base.errors import PeerError
from penstock.client.consumer.fetched import FetchedRecord
from penstock.client.metadata import TopicPartition
from penstock.wire.messages.share import AcquiredRecords
from penstock.wire.records import batches, check_stored, decode, is_append_time, is_control

RECORDS_MAX = 1_000_000
"""Limits the acquired records of one partition in a reply, which is not trusted beyond it."""


class HeldLease:
    """Message that is leased to this member until `deadline`, by the loop's clock."""

    __slots__ = (
        "deadline",
        "delivery_count",
        "is_lost",
        "is_renewing",
        "is_settled",
        "lock_s",
        "message",
        "renew_until",
    )

    def __init__(
        self, message: FetchedRecord, delivery_count: int, deadline: float, lock_s: float
    ) -> None:
        self.message = message
        self.delivery_count = delivery_count
        """Number of this delivery, counted from 1."""
        self.deadline = deadline
        self.lock_s = lock_s
        self.renew_until = deadline
        """Time until which the consumer renews the lease."""
        self.is_renewing = False
        self.is_settled = False
        """True once it was acknowledged; a second acknowledgement is refused."""
        self.is_lost = False
        """True once the broker says that this member does not hold the lease."""

    @property
    def where(self) -> TopicPartition:
        return TopicPartition(self.message.topic, self.message.partition)


class Acquired(NamedTuple):
    """Acquired records and gaps of one partition in a share fetch."""

    leases: list[HeldLease]
    gaps: list[int]


def read_acquired(
    where: TopicPartition,
    records: memoryview,
    ranges: Sequence[AcquiredRecords],
    now: float,
    lock_s: float,
) -> Acquired:
    """Decodes the records of the acquired ranges. Raises PeerError for damaged batches."""
    deadline = now + lock_s
    counts: dict[int, int] = {}
    if sum(max(0, part.last_offset - part.first_offset + 1) for part in ranges) > RECORDS_MAX:
        raise PeerError(f"more than {RECORDS_MAX} records of {where} in one reply")
    for part in ranges:
        counts.update(
            dict.fromkeys(range(part.first_offset, part.last_offset + 1), part.delivery_count)
        )
    leases: list[HeldLease] = []
    topic, partition = where
    for position, header in batches(records):
        if is_control(header.attributes):
            continue
        view = records[position : position + header.size_bytes]
        check_stored(view)
        columns = decode(view)
        append_time = is_append_time(header.attributes)
        for index, offset in enumerate(columns.offsets):
            count = counts.pop(offset, None)
            if count is None:
                continue
            record = columns.record(index)
            message = FetchedRecord(topic, partition, *record, is_append_time=append_time)
            leases.append(HeldLease(message, count, deadline, lock_s))
    return Acquired(leases, sorted(counts))


UNCLAIMED_MAX_S = 1.0
"""Releases records after this time, in seconds, if they arrived after `receive` timed out."""
PREFETCHED_MAX_S = 5.0
"""Releases prefetched records after this time, in seconds, if `receive` is not called."""


class HeldRecords:
    """Held records; times are those of the event loop."""

    def __init__(self) -> None:
        self._buffer: deque[HeldLease] = deque()
        self._taken: dict[tuple[TopicPartition, int], HeldLease] = {}

    def __len__(self) -> int:
        return len(self._buffer) + len(self._taken)

    @property
    def waiting(self) -> int:
        """Number of records that wait for a caller."""
        return len(self._buffer)

    def add(self, leases: Iterable[HeldLease]) -> None:
        for lease in leases:
            earlier = self._taken.pop((lease.where, lease.message.offset), None)
            if earlier is not None:
                earlier.is_lost = True
            self._buffer.append(lease)

    def take(self, records_max: int, now: float, renew_for_s: float) -> list[HeldLease]:
        """Returns records to a caller, in the order in which they arrived."""
        taken: list[HeldLease] = []
        while self._buffer and len(taken) < records_max:
            lease = self._buffer.popleft()
            if lease.deadline <= now or lease.is_lost:
                continue  # The lease expired before a caller took it; the broker delivers it again.
            lease.renew_until = now + renew_for_s
            self._taken[lease.where, lease.message.offset] = lease
            taken.append(lease)
        return taken

    def settle(self, lease: HeldLease) -> None:
        """Marks a record as settled: it is not renewed any more."""
        lease.is_settled = True
        self._drop(lease)

    def lose(self, lease: HeldLease) -> None:
        """Marks a record as lost: the broker says that this member does not hold its lease."""
        lease.is_lost = True
        self._drop(lease)

    def _drop(self, lease: HeldLease) -> None:
        key = (lease.where, lease.message.offset)
        if self._taken.get(key) is lease:
            del self._taken[key]

    def due(self, now: float) -> list[HeldLease]:
        """Returns received records whose leases must be renewed now."""
        return [
            lease
            for lease in self._taken.values()
            if not lease.is_renewing
            and now < lease.renew_until
            and lease.deadline - now < lease.lock_s / 2
        ]

    def remove_stale(self, now: float, unasked_s: float, *, is_ahead: bool) -> list[HeldLease]:
        """Removes and returns records to release. `unasked_s`: seconds since the last `receive`."""
        limit_s = PREFETCHED_MAX_S if is_ahead else UNCLAIMED_MAX_S
        stale: list[HeldLease] = []
        kept: deque[HeldLease] = deque()
        for lease in self._buffer:
            age_s = lease.lock_s - (lease.deadline - now)
            is_stale = age_s > lease.lock_s / 2 or min(age_s, unasked_s) > limit_s
            (stale if is_stale else kept).append(lease)
        self._buffer = kept
        return stale

    def remove_waiting(self) -> list[HeldLease]:
        """Removes and returns all records that wait for a caller."""
        found = list(self._buffer)
        self._buffer.clear()
        return found

    def clear(self) -> None:
        self._buffer.clear()
        self._taken.clear()
