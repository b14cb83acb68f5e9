"""Records that are held: fetched ahead, handed out, renewed, given back."""

from penstock.client.consumer.fetched import FetchedRecord
from penstock.client.share.held_records import PREFETCHED_MAX_S, UNCLAIMED_MAX_S, HeldRecords
from penstock.client.share.leases import HeldLease

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


def test_records_are_handed_out_in_order_and_counted_until_settled() -> None:
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


def test_what_ran_out_while_nobody_asked_is_not_handed_out() -> None:
    holdings = holding(1)
    holdings.add([lease(2, now=20.0)])
    assert offsets(holdings.take(5, LOCK_S, 100.0)) == [2]


def test_leases_are_renewed_at_half_time_until_their_time_is_up() -> None:
    holdings = holding(1, 2)
    (taken,) = holdings.take(1, 0.0, 20.0)
    assert holdings.due(14.0) == []
    assert holdings.due(16.0) == [taken]
    taken.is_renewing = True
    assert holdings.due(16.0) == []
    taken.is_renewing = False
    assert holdings.due(20.0) == []


def test_what_nobody_takes_goes_back_at_half_its_lease() -> None:
    holdings = holding(1)
    holdings.add([lease(2, now=10.0)])
    assert holdings.remove_stale(LOCK_S / 2, 0.0, is_ahead=True) == []
    assert offsets(holdings.remove_stale(16.0, 0.0, is_ahead=True)) == [1]
    assert holdings.waiting == 1


def test_what_nobody_asks_for_goes_back_sooner() -> None:
    holdings = holding(1)
    assert holdings.remove_stale(10.0, UNCLAIMED_MAX_S, is_ahead=False) == []
    assert offsets(holdings.remove_stale(10.0, UNCLAIMED_MAX_S + 0.1, is_ahead=False)) == [1]
    holdings = holding(1)
    assert holdings.remove_stale(10.0, PREFETCHED_MAX_S, is_ahead=True) == []
    assert offsets(holdings.remove_stale(10.0, PREFETCHED_MAX_S + 0.1, is_ahead=True)) == [1]
    # It is as young as the question is old: it came for nobody just now.
    holdings = holding(1)
    assert holdings.remove_stale(0.5, 100.0, is_ahead=False) == []


def test_a_record_that_comes_again_ends_its_earlier_delivery() -> None:
    holdings = holding(1)
    (earlier,) = holdings.take(1, 0.0, 100.0)
    again = lease(1, now=40.0)
    holdings.add([again])
    assert earlier.is_lost
    assert holdings.take(1, 40.0, 100.0) == [again]
    holdings.settle(earlier)
    assert holdings.due(60.0) == [again]


def test_all_that_waits_can_be_taken_out() -> None:
    holdings = holding(1, 2, 3)
    holdings.take(1, 0.0, 1.0)
    assert offsets(holdings.remove_waiting()) == [2, 3]
    assert len(holdings) == 1
    holdings.clear()
    assert len(holdings) == 0
