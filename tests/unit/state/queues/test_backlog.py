"""Backlog of a queue partition: ready records, skipped records, limits."""

from array import array

import pytest

from penstock.state.queues.backlog import Arrival, Backlog
from penstock.state.queues.delivery_state import (
    DedupMarker,
    DeliveryFailure,
    Finished,
    LeaseState,
    Moved,
    QueueState,
    Snapshot,
)
from penstock.state.queues.intervals import IntervalSet
from penstock.state.queues.policy import Order, QueuePolicy

FAILURE = DeliveryFailure(1, 500, 10, 20)


def backlog(
    order: Order = Order.NONE, kept: QueueState | None = None, entries_max: int = 1_000
) -> Backlog:
    policy = QueuePolicy(order=order, entries_max=entries_max)
    return Backlog(policy, kept or QueueState(Snapshot(0)))


def test_a_plain_run_is_ready_as_a_whole() -> None:
    waiting = backlog()
    waiting.arrive_run(0, 999_999)
    assert waiting.ready_count == 1_000_000
    assert waiting.end == 1_000_000
    assert not waiting.is_full


def test_what_was_settled_or_leased_before_does_not_become_ready_again() -> None:
    runs = IntervalSet()
    runs.add(4, 5)
    kept = QueueState(
        Snapshot(
            2,
            finished=runs.packed(),
            leases=(LeaseState(6, 7, "a", 100, 1),),
            failures=((8, FAILURE),),
            archived=((9, FAILURE),),
        )
    )
    singly, plain, timed, delayed = (backlog(kept=kept) for _ in range(4))
    singly.arrive(Arrival(offset) for offset in range(2, 12))
    plain.arrive_run(2, 11)
    timed.arrive_timed(2, array("q", [0, -1] * 5))
    for waiting in (singly, plain, timed):
        assert waiting.ready_count == 4  # 2, 3, 10 and 11
        assert waiting.delayed_count == 1
    delayed.arrive_timed(2, array("q", range(1_000, 1_010)))
    assert (delayed.ready_count, delayed.delayed_count) == (0, 5)
    assert [offset for offset, _ in delayed._delays.due(1_009)] == [8, 2, 3, 10, 11]


def test_a_start_that_moved_meanwhile_holds_for_records_that_arrive_later() -> None:
    waiting = backlog()
    waiting.kept.apply(Moved(3))
    waiting.arrive_run(0, 5)
    assert waiting.ready_count == 3
    waiting = backlog()
    waiting.kept.apply(Moved(9))
    waiting.arrive_run(0, 5)
    assert waiting.ready_count == 0
    waiting.arrive_timed(6, array("q", [70, 80, 90, 100]))
    assert [offset for offset, _ in waiting._delays.due(100)] == [9]


def test_records_with_a_time_wait_for_it() -> None:
    waiting = backlog()
    waiting.arrive([Arrival(0, due_ms=50), Arrival(1)])
    assert (waiting.ready_count, waiting.delayed_count) == (1, 1)
    waiting.arrive_timed(2, array("q", [50, 0, 60]))
    assert (waiting.ready_count, waiting.delayed_count) == (2, 3)
    assert waiting.end == 5


def test_of_a_key_one_is_ready_and_the_others_are_in_line() -> None:
    waiting = backlog(Order.KEY)
    waiting.arrive([Arrival(0, key=1), Arrival(1, key=2), Arrival(2, key=1)])
    assert waiting.ready_count == 2
    whole = backlog(Order.PARTITION)
    whole.arrive([Arrival(0, key=1), Arrival(1, key=2), Arrival(2, key=1)])
    assert whole.ready_count == 1


def test_what_is_for_nobody_is_finished() -> None:
    waiting = backlog()
    waiting.arrive_run(0, 1)
    assert waiting.pass_over(4) == [Finished(2, 4)]
    assert waiting.end == 5
    assert list(waiting.kept.finished) == [(2, 4)]
    again = backlog(kept=waiting.kept)
    again.arrive_run(0, 1)
    assert again.pass_over(4) == []


def test_that_records_have_ids_is_noted_once() -> None:
    waiting = backlog()
    assert waiting.note_ids() == [DedupMarker()]
    assert waiting.note_ids() == []


def test_at_its_bound_it_is_full_and_later_it_is_not() -> None:
    waiting = backlog(entries_max=10)
    for offset in range(10):
        assert not waiting.is_full
        waiting.arrive([Arrival(offset, due_ms=1_000)])
    assert waiting.is_full


def test_records_arrive_in_the_order_of_the_log() -> None:
    waiting = backlog()
    waiting.arrive_run(0, 5)
    with pytest.raises(AssertionError):
        waiting.arrive([Arrival(5)])
