"""Leased records of a share consumer, and their decoding from a share fetch (KIP-932).

A share fetch returns whole batches and the ranges of acquired offsets in them. Offsets of a range
without record (compaction, control records) are gaps: they are acknowledged as gaps and are not
delivered.
"""

from collections.abc import Sequence
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
