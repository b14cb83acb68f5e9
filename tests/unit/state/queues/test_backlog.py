"""Backlog of a queue partition: ready records, skipped records, limits."""

import random
import tracemalloc
from array import array

import pytest

from penstock.state.queues.backlog import Arrival, Backlog
from penstock.state.queues.delayed_offsets import Delays
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
from penstock.state.queues.key_order import KeyQueues
from penstock.state.queues.policy import Order, QueuePolicy

FAILURE = DeliveryFailure(1, 500, 10, 20)


def backlog(
    order: Order = Order.NONE, kept: QueueState | None = None, entries_max: int = 1_000
) -> Backlog:
    policy = QueuePolicy(order=order, entries_max=entries_max)
    return Backlog(policy, kept or QueueState(Snapshot(0)))


def test_plain_run_is_ready_as_a_whole() -> None:
    waiting = backlog()
    waiting.arrive_run(0, 999_999)
    assert waiting.ready_count == 1_000_000
    assert waiting.end == 1_000_000
    assert not waiting.is_full


def test_settled_or_leased_records_do_not_become_ready_again() -> None:
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


def test_start_that_moved_meanwhile_holds_for_records_that_arrive_later() -> None:
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


def test_one_record_of_a_key_is_ready_and_the_rest_wait() -> None:
    waiting = backlog(Order.KEY)
    waiting.arrive([Arrival(0, key=1), Arrival(1, key=2), Arrival(2, key=1)])
    assert waiting.ready_count == 2
    whole = backlog(Order.PARTITION)
    whole.arrive([Arrival(0, key=1), Arrival(1, key=2), Arrival(2, key=1)])
    assert whole.ready_count == 1


def test_skipped_records_are_finished() -> None:
    waiting = backlog()
    waiting.arrive_run(0, 1)
    assert waiting.pass_over(4) == [Finished(2, 4)]
    assert waiting.end == 5
    assert list(waiting.kept.finished) == [(2, 4)]
    again = backlog(kept=waiting.kept)
    again.arrive_run(0, 1)
    assert again.pass_over(4) == []


def test_presence_of_ids_is_noted_once() -> None:
    waiting = backlog()
    assert waiting.note_ids() == [DedupMarker()]
    assert waiting.note_ids() == []


def test_backlog_is_full_at_its_limit() -> None:
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


def test_first_record_of_a_key_is_its_head() -> None:
    queues = KeyQueues()
    assert queues.join(1, 10)
    assert not queues.join(1, 11)
    assert queues.join(2, 12)
    assert len(queues) == 3


def test_next_offset_becomes_head_when_the_head_leaves() -> None:
    queues = KeyQueues()
    for offset in (10, 11, 12):
        queues.join(1, offset)
    assert queues.leave(1, 10) == 11
    assert queues.leave(1, 11) == 12
    assert queues.leave(1, 12) is None
    assert len(queues) == 0
    assert queues.join(1, 13)


def test_followers_are_the_offsets_behind_the_head() -> None:
    queues = KeyQueues()
    assert list(queues.followers(1, 9)) == []
    for offset in (10, 11, 12, 13):
        queues.join(1, offset)
    assert list(queues.followers(1, 2)) == [11, 12]
    assert queues.is_head(1, 10)
    assert not queues.is_head(1, 11)
    assert not queues.is_head(2, 10)
    for offset in (10, 11, 12):
        queues.leave(1, offset)
    assert queues.is_head(1, 13)
    assert list(queues.followers(1, 9)) == []


def test_leave_from_the_middle_keeps_the_head() -> None:
    queues = KeyQueues()
    for offset in (10, 11, 12):
        queues.join(1, offset)
    assert queues.leave(1, 11) is None
    assert queues.leave(1, 10) == 12


def test_leave_ignores_an_offset_that_is_not_queued() -> None:
    queues = KeyQueues()
    queues.join(1, 10)
    assert queues.leave(1, 99) is None
    assert queues.leave(2, 10) is None
    queues.join(1, 11)
    assert queues.leave(1, 99) is None
    assert len(queues) == 2


def test_offsets_are_due_at_their_time_and_not_before() -> None:
    delays = Delays()
    for due_ms, offset in ((5_000, 1), (1_500, 2), (1_499, 3)):
        delays.add(due_ms, offset)
    assert delays.due(1_498) == []
    assert delays.due(1_500) == [(3, 0), (2, 0)]
    assert delays.due(4_999) == []
    assert delays.due(5_000) == [(1, 0)]
    assert len(delays) == 0
    assert delays.next_ms() is None


def test_tag_travels_along() -> None:
    delays = Delays()
    delays.add(10, 7, 9)
    assert delays.due(10) == [(7, 9)]


def test_offset_added_to_the_current_bucket_is_kept() -> None:
    delays = Delays()
    delays.add(1_900, 1)
    assert delays.due(1_100) == []
    delays.add(1_200, 2)
    delays.add(1_000, 3)
    assert delays.due(1_200) == [(3, 0), (2, 0)]
    assert delays.due(1_900) == [(1, 0)]


def test_next_look_is_never_too_late() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        delays, left = Delays(), {}
        now_ms = 0
        for offset in range(300):
            due_ms = now_ms + rng.randrange(20_000)
            delays.add(due_ms, offset)
            left[offset] = due_ms
            if rng.random() < 0.3:
                next_ms = delays.next_ms()
                assert next_ms is not None
                assert next_ms <= min(left.values())
                now_ms = max(now_ms, next_ms)
                found = [offset for offset, _ in delays.due(now_ms)]
                assert sorted(found) == sorted(o for o, due in left.items() if due <= now_ms)
                for offset in found:
                    del left[offset]
        assert len(delays) == len(left)


def test_however_far_ahead_they_take_less_than_forty_bytes_each() -> None:
    rng = random.Random(1)
    count = 100_000
    for span_ms in (60_000, 86_400_000):
        tracemalloc.start()
        delays = Delays()
        for offset in range(count):
            delays.add(rng.randrange(span_ms), offset)
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(delays) == count
        assert used / count < 40, span_ms


def test_equal_due_times_take_little_memory() -> None:
    count = 20_000
    tracemalloc.start()
    delays = Delays()
    for offset in range(count):
        delays.add(100_000 + offset % 900, offset)
    assert delays.due(99_999) == []
    assert len(delays.due(100_000)) == len(range(0, count, 900))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / count < 64
    assert len(delays.due(100_900)) == count - len(range(0, count, 900))


def test_neighbours_come_as_if_they_had_been_added_one_by_one() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        together, singly = Delays(), Delays()
        now_ms = first = 0
        for _ in range(30):
            times = array("q", [now_ms + rng.randrange(-500, 60_000) for _ in range(50)])
            together.add_run(first, times)
            for offset, due_ms in enumerate(times, first):
                singly.add(due_ms, offset)
            first += len(times)
            now_ms += rng.randrange(5_000)
            assert together.due(now_ms) == singly.due(now_ms)
            assert together.next_ms() == singly.next_ms()
            assert len(together) == len(singly)
