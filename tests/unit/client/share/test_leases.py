"""Records of a share fetch: what was acquired, what lies beside it, and gaps."""

import pytest

from penstock.base.errors import PeerError, Refused
from penstock.client.metadata import TopicPartition
from penstock.client.share.leases import RECORDS_MAX, read_acquired
from penstock.wire.messages.share import AcquiredRecords
from penstock.wire.records import Record, encode

WHERE = TopicPartition("jobs", 2)


def batch(first: int, count: int) -> bytes:
    records = [Record(0, 1_000 + n, b"k%d" % n, b"v%d" % n, ()) for n in range(count)]
    return bytes(encode(records, base_offset=first))


def acquired(first: int, last: int, count: int = 1) -> AcquiredRecords:
    return AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)


def test_only_what_was_acquired_is_ours() -> None:
    view = memoryview(batch(10, 5) + batch(15, 5))
    found = read_acquired(WHERE, view, [acquired(12, 13), acquired(16, 16, 3)], 100.0, 30.0)
    assert [(one.message.offset, one.delivery_count) for one in found.leases] == [
        (12, 1),
        (13, 1),
        (16, 3),
    ]
    first = found.leases[0]
    assert (first.message.key, first.message.value, first.where) == (b"k2", b"v2", WHERE)
    assert first.deadline == 130.0
    assert found.gaps == []


def test_acquired_offsets_without_a_record_are_gaps() -> None:
    found = read_acquired(WHERE, memoryview(batch(10, 2)), [acquired(8, 14)], 0.0, 30.0)
    assert [one.message.offset for one in found.leases] == [10, 11]
    assert found.gaps == [8, 9, 12, 13, 14]


def test_a_batch_that_is_not_intact_is_not_believed() -> None:
    broken = bytearray(batch(10, 2))
    broken[-1] ^= 1
    with pytest.raises((PeerError, Refused)):
        read_acquired(WHERE, memoryview(broken), [acquired(10, 11)], 0.0, 30.0)


def test_a_range_beyond_belief_allocates_nothing() -> None:
    with pytest.raises(PeerError, match="more than"):
        read_acquired(WHERE, memoryview(b""), [acquired(0, RECORDS_MAX)], 0.0, 30.0)
