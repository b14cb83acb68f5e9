"""Records of a share fetch: what was acquired, what lies beside it, and gaps."""

import pytest

from penstock.base.errors import PeerError, Refused
from penstock.client.consumer.fetched import FetchedRecord
from penstock.client.metadata import TopicPartition
from penstock.client.share.leases import (
    PREFETCHED_MAX_S,
    RECORDS_MAX,
    UNCLAIMED_MAX_S,
    HeldLease,
    HeldRecords,
    read_acquired,
)
from penstock.wire.messages.share import AcquiredRecords
from penstock.wire.records import Record, encode

WHERE = TopicPartition("jobs", 2)


def batch(first: int, count: int) -> bytes:
    records = [Record(0, 1_000 + n, b"k%d" % n, b"v%d" % n, ()) for n in range(count)]
    return bytes(encode(records, base_offset=first))


def acquired(first: int, last: int, count: int = 1) -> AcquiredRecords:
    return AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)


def test_only_acquired_records_are_returned() -> None:
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


def test_corrupt_batch_is_refused() -> None:
    broken = bytearray(batch(10, 2))
    broken[-1] ^= 1
    with pytest.raises((PeerError, Refused)):
        read_acquired(WHERE, memoryview(broken), [acquired(10, 11)], 0.0, 30.0)


def test_impossible_range_allocates_nothing() -> None:
    with pytest.raises(PeerError, match="more than"):
        read_acquired(WHERE, memoryview(b""), [acquired(0, RECORDS_MAX)], 0.0, 30.0)


LOCK_S = 30.0


def lease(offset: int, now: float = 0.0) -> HeldLease:
    message = FetchedRecord("jobs", 0, offset, 0, None, b"", ())
    return HeldLease(message, 1, now + LOCK_S, LOCK_S)


def offsets(leases: list[HeldLease]) -> list[int]:
    return [one.message.offset for one in leases]


def holding(*numbers: int) -> HeldRecords:
    holdings = HeldRecords()
    holdings.add(lease(offset) for offset in numbers)
    return holdings


def test_records_are_taken_in_order_and_counted_until_settled() -> None:
    holdings = holding(1, 2, 3)
    taken = holdings.take(2, 0.0, 100.0)
    assert offsets(taken) == [1, 2]
    assert (len(holdings), holdings.waiting) == (3, 1)
    holdings.settle(taken[0])
    assert taken[0].is_settled
    assert len(holdings) == 2
    holdings.lose(taken[1])
    assert taken[1].is_lost
    assert len(holdings) == 1


def test_expired_records_are_not_returned() -> None:
    holdings = holding(1)
    holdings.add([lease(2, now=20.0)])
    assert offsets(holdings.take(5, LOCK_S, 100.0)) == [2]


def test_leases_are_renewed_at_half_time_until_the_limit() -> None:
    holdings = holding(1, 2)
    (taken,) = holdings.take(1, 0.0, 20.0)
    assert holdings.due(14.0) == []
    assert holdings.due(16.0) == [taken]
    taken.is_renewing = True
    assert holdings.due(16.0) == []
    taken.is_renewing = False
    assert holdings.due(20.0) == []


def test_unclaimed_records_are_released_at_half_their_lease() -> None:
    holdings = holding(1)
    holdings.add([lease(2, now=10.0)])
    assert holdings.remove_stale(LOCK_S / 2, 0.0, is_ahead=True) == []
    assert offsets(holdings.remove_stale(16.0, 0.0, is_ahead=True)) == [1]
    assert holdings.waiting == 1


def test_records_without_a_pending_receive_are_released_sooner() -> None:
    holdings = holding(1)
    assert holdings.remove_stale(10.0, UNCLAIMED_MAX_S, is_ahead=False) == []
    assert offsets(holdings.remove_stale(10.0, UNCLAIMED_MAX_S + 0.1, is_ahead=False)) == [1]
    holdings = holding(1)
    assert holdings.remove_stale(10.0, PREFETCHED_MAX_S, is_ahead=True) == []
    assert offsets(holdings.remove_stale(10.0, PREFETCHED_MAX_S + 0.1, is_ahead=True)) == [1]
    # It is as young as the request is old: it did not come for a waiting call.
    holdings = holding(1)
    assert holdings.remove_stale(0.5, 100.0, is_ahead=False) == []


def test_redelivered_record_ends_its_earlier_delivery() -> None:
    holdings = holding(1)
    (earlier,) = holdings.take(1, 0.0, 100.0)
    again = lease(1, now=40.0)
    holdings.add([again])
    assert earlier.is_lost
    assert holdings.take(1, 40.0, 100.0) == [again]
    holdings.settle(earlier)
    assert holdings.due(60.0) == [again]


def test_waiting_records_can_be_removed() -> None:
    holdings = holding(1, 2, 3)
    holdings.take(1, 0.0, 1.0)
    assert offsets(holdings.remove_waiting()) == [2, 3]
    assert len(holdings) == 1
    holdings.clear()
    assert len(holdings) == 0
