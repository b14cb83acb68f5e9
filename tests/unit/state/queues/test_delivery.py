"""Delivery, rule by rule; invariants over random histories are in tests/property."""

import random

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.state.queues.delayed_offsets import Delays
from penstock.state.queues.delivery import (
    ANSWERED_BEFORE,
    STEP_MS,
    STEPS_MAX,
    Arrival,
    Delivery,
    DeliveryOutcome,
    Holding,
)
from penstock.state.queues.delivery_state import (
    TRACEBACK_MAX,
    TRACEBACKS_MAX,
    DeadLetterBatch,
    Finished,
    Op,
    QueueState,
    Snapshot,
)
from penstock.state.queues.policy import Order, QueuePolicy

LOCK_MS = 100


def machine(order: Order = Order.NONE, **policy: int | bool) -> Delivery:
    settings = {"lock_ms": LOCK_MS, "backoff_base_ms": 0, **policy}
    return Delivery(QueuePolicy(order=order, **settings), QueueState(Snapshot(0)))  # type: ignore[arg-type]


def given(outcome: DeliveryOutcome) -> list[tuple[int, int, int]]:
    """First and last offset, and delivery count, of each lease."""
    return [(lease.first, lease.last, lease.delivery_count) for lease in outcome.leases]


def refused(code: ErrorCode = ErrorCode.INVALID_RECORD_STATE) -> "pytest.RaisesExc[Refused]":
    return pytest.raises(Refused, check=lambda error: error.code is code)


# -- giving -----------------------------------------------------------------------------------


def test_records_are_leased_in_the_order_of_the_log() -> None:
    queue = machine()
    queue.arrive_run(0, 9)
    assert given(queue.acquire("a", 4, 0)) == [(0, 3, 1)]
    assert given(queue.acquire("b", 4, 0)) == [(4, 7, 1)]
    assert given(queue.acquire("a", 4, 0)) == [(8, 9, 1)]
    assert given(queue.acquire("a", 4, 0)) == []


def test_higher_priority_goes_first() -> None:
    queue = machine()
    queue.arrive_run(0, 99)
    queue.arrive([Arrival(100, priority=9), Arrival(101, priority=3)])
    assert given(queue.acquire("a", 3, 0)) == [(100, 100, 1), (101, 101, 1), (0, 0, 1)]


def test_one_priority_is_acquired_at_a_time_on_request() -> None:
    queue = machine()
    queue.arrive_run(0, 9)
    queue.arrive([Arrival(10, priority=9)])
    assert given(queue.acquire("a", 5, 0, one_priority=True)) == [(10, 10, 1)]
    assert given(queue.acquire("a", 5, 0, one_priority=True)) == [(0, 4, 1)]


def test_leases_in_flight_are_limited() -> None:
    queue = machine(locks_max=5)
    queue.arrive_run(0, 9)
    assert given(queue.acquire("a", 9, 0)) == [(0, 4, 1)]
    assert given(queue.acquire("b", 9, 0)) == []
    queue.accept("a", 0, 1, 0)
    assert given(queue.acquire("b", 9, 0)) == [(5, 6, 1)]


def test_lease_may_be_as_long_as_its_taker_wants() -> None:
    queue = machine()
    queue.arrive_run(0, 0)
    queue.acquire("a", 1, 0, lock_ms=1_000)
    assert given(queue.acquire("b", 1, LOCK_MS)) == []
    queue.tick(1_000)
    assert given(queue.acquire("b", 1, 1_000)) == [(0, 0, 2)]


def in_groups(keys: str) -> Delivery:
    """Records of these keys, one character each, from offset 0 on."""
    queue = machine(Order.KEY)
    queue.arrive([Arrival(at, key=ord(key)) for at, key in enumerate(keys)])
    return queue


def offsets(outcome: DeliveryOutcome) -> list[int]:
    return [at for lease in outcome.leases for at in range(lease.first, lease.last + 1)]


def test_followers_of_a_key_are_acquired_together_on_request() -> None:
    queue = in_groups("abaabc")
    assert offsets(queue.acquire("m", 3, 0, with_followers=True)) == [0, 2, 3]
    assert offsets(queue.acquire("m", 9, 0, with_followers=True)) == [1, 4, 5]
    assert offsets(queue.acquire("m", 9, 0, with_followers=True)) == []


def test_records_acquired_together_wait_for_earlier_ones() -> None:
    queue = in_groups("aaaa")
    assert offsets(queue.acquire("m", 3, 0, with_followers=True)) == [0, 1, 2]
    queue.release("m", 1, 1, 1, delay_ms=0)
    queue.release("m", 2, 2, 1, delay_ms=50)
    assert offsets(queue.acquire("n", 9, 1, with_followers=True)) == [], "the first is held"
    queue.release("m", 0, 0, 1, delay_ms=0)
    assert offsets(queue.acquire("n", 9, 1, with_followers=True)) == [0, 1], "the third rests"
    queue.accept("n", 0, 1, 2)
    assert offsets(queue.acquire("n", 9, 2, with_followers=True)) == []
    queue.tick(51)
    assert offsets(queue.acquire("n", 9, 51, with_followers=True)) == [2, 3]


def test_later_one_that_is_held_does_not_hold_up_those_before_it() -> None:
    queue = in_groups("aaa")
    queue.acquire("m", 3, 0, with_followers=True)
    queue.renew("m", 1, 1, 1, 1_000)
    queue.tick(LOCK_MS)
    assert offsets(queue.acquire("n", 9, LOCK_MS, with_followers=True)) == [0]
    queue.accept("n", 0, 0, LOCK_MS)
    assert offsets(queue.acquire("n", 9, LOCK_MS, with_followers=True)) == []
    queue.accept("m", 1, 1, LOCK_MS)
    assert offsets(queue.acquire("n", 9, LOCK_MS, with_followers=True)) == [2]


# -- taking back ------------------------------------------------------------------------------


def test_accepted_record_is_finished() -> None:
    queue = machine()
    queue.arrive_run(0, 4)
    queue.acquire("a", 5, 0)
    assert queue.accept("a", 1, 3, 50).ops == [Finished(1, 3)]
    queue.accept("a", 0, 0, 50)
    assert queue.kept.start == 4


@pytest.mark.parametrize(
    ("member", "first", "last", "now_ms"),
    [
        ("b", 0, 4, 50),
        ("a", 0, 5, 50),
        ("a", 3, 2, 50),
        ("a", 0, 4, LOCK_MS),
        ("a", 90, 91, 50),
    ],
)
def test_only_the_holder_of_all_records_may_settle(
    member: str, first: int, last: int, now_ms: int
) -> None:
    queue = machine()
    queue.arrive_run(0, 9)
    queue.acquire("a", 5, 0)
    before = queue.kept.snapshot()
    for answer in (queue.accept, queue.release, queue.reject, queue.renew, queue.give_back):
        with refused():
            answer(member, first, last, now_ms)
    with refused():
        queue.check_held(member, [(0, 0), (first, last)], now_ms)
    assert queue.kept.snapshot() == before


def test_late_settlement_finishes_records_not_leased_again() -> None:
    queue = machine()
    queue.arrive_run(0, 3)
    queue.acquire("a", 3, 0)
    assert queue.finish("a", 0, 0, 1).ops == [Finished(0, 0)], "as accept, while it is held"
    queue.tick(LOCK_MS)
    assert queue.finish("a", 1, 1, LOCK_MS).ops == [Finished(1, 1)]
    with refused():
        queue.finish("a", 1, 1, LOCK_MS)
    assert given(queue.acquire("b", 1, LOCK_MS)) == [(2, 2, 2)]
    with refused():
        queue.finish("a", 2, 2, LOCK_MS)
    assert queue.finish("b", 2, 2, LOCK_MS).ops == [Finished(2, 2)]
    # An offset that no record has is not finished before there is one.
    assert queue.finish("a", 9, 9, LOCK_MS).ops == []
    assert given(queue.acquire("b", 9, LOCK_MS)) == [(3, 3, 1)]


def test_answer_counts_once() -> None:
    queue = machine()
    queue.arrive_run(0, 0)
    queue.acquire("a", 1, 0)
    queue.accept("a", 0, 0, 1)
    with refused():
        queue.accept("a", 0, 0, 1)


def test_released_record_returns_after_its_backoff() -> None:
    queue = machine(backoff_base_ms=40, backoff_cap_ms=40)
    queue.arrive_run(0, 0)
    queue.acquire("a", 1, 0)
    queue.release("a", 0, 0, 10, error_class="Oops", error_message="x" * 9_999)
    assert given(queue.acquire("a", 1, 10)) == []
    due_ms = queue.kept.failures[0].not_before_ms
    assert 50 <= due_ms < 90
    assert len(queue.kept.failures[0].error_message) == 512
    queue.tick(due_ms - 1)
    assert given(queue.acquire("a", 1, due_ms - 1)) == []
    queue.tick(due_ms)
    assert given(queue.acquire("a", 1, due_ms)) == [(0, 0, 2)]


def test_release_may_set_its_delay() -> None:
    queue = machine(backoff_base_ms=40)
    queue.arrive_run(0, 1)
    queue.acquire("a", 2, 0)
    queue.release("a", 0, 0, 10, delay_ms=0)
    queue.release("a", 1, 1, 10, delay_ms=5_000)
    assert given(queue.acquire("b", 2, 10)) == [(0, 0, 2)]
    queue.accept("b", 0, 0, 10)
    queue.tick(5_009)
    assert given(queue.acquire("b", 2, 5_009)) == []
    queue.tick(5_010)
    assert given(queue.acquire("b", 2, 5_010)) == [(1, 1, 2)]


def test_record_is_dead_lettered_after_its_last_delivery() -> None:
    queue = machine(deliveries_max=2)
    queue.arrive_run(0, 0)
    for count in (1, 2):
        assert given(queue.acquire("a", 1, 0)) == [(0, 0, count)]
        letters = queue.release("a", 0, 0, count, error_class=f"Error{count}").dead_letters
    ((offset, failure),) = letters
    assert (offset, failure.delivery_count, failure.error_class) == (0, 2, "Error2")
    assert (failure.first_ms, failure.last_ms) == (1, 2)
    assert queue.kept.start == 0
    assert queue.dead_letters() == letters
    assert given(queue.acquire("a", 1, 5)) == []


def test_without_dead_letters_a_record_that_is_given_up_is_finished() -> None:
    queue = machine(deliveries_max=1, dead_letters=False)
    queue.arrive_run(0, 0)
    queue.acquire("a", 1, 0)
    assert queue.reject("a", 0, 0, 1).dead_letters == []
    assert queue.kept.start == 1


def test_returned_record_is_not_counted() -> None:
    queue = machine()
    queue.arrive([Arrival(0, priority=4), Arrival(1)])
    queue.acquire("a", 2, 0)
    queue.give_back("a", 0, 1, 1)
    assert given(queue.acquire("b", 2, 1)) == [(0, 0, 1), (1, 1, 1)]
    queue.release("b", 0, 0, 1)
    assert given(queue.acquire("b", 1, 1)) == [(0, 0, 2)]
    queue.give_back("b", 0, 0, 1)
    assert given(queue.acquire("b", 1, 1)) == [(0, 0, 2)]


def test_renewed_lease_begins_anew() -> None:
    queue = machine()
    queue.arrive_run(0, 3)
    queue.acquire("a", 4, 0)
    queue.renew("a", 1, 2, 60)
    queue.tick(LOCK_MS)
    assert given(queue.acquire("b", 9, LOCK_MS)) == [(0, 0, 2), (3, 3, 2)]
    queue.accept("a", 1, 1, 159)
    queue.tick(160)
    assert given(queue.acquire("b", 9, 160)) == [(2, 2, 2)]


def test_leases_of_a_leaving_member_are_released() -> None:
    queue = machine()
    queue.arrive_run(0, 5)
    queue.acquire("a", 2, 0)
    queue.acquire("b", 2, 0)
    queue.release_member("a", 1)
    assert given(queue.acquire("c", 9, 1)) == [(0, 1, 2), (4, 5, 1)]


# -- time -------------------------------------------------------------------------------------


def test_deadline_is_never_too_late() -> None:
    queue = machine()
    assert queue.deadline_ms() is None
    queue.arrive([Arrival(0), Arrival(1, due_ms=70), Arrival(2, expires_ms=5_000)])
    queue.acquire("a", 1, 0)
    deadline_ms = queue.deadline_ms()
    assert deadline_ms is not None
    assert deadline_ms <= 70


def test_expired_record_is_dead_lettered_unless_leased() -> None:
    queue = machine()
    queue.arrive([Arrival(0, expires_ms=50), Arrival(1, expires_ms=50)])
    queue.acquire("a", 1, 0)
    letters = queue.tick(50).dead_letters
    assert [(letter.offset, letter.failure.error_class) for letter in letters] == [(1, "expired")]
    letters = queue.release("a", 0, 0, 60).dead_letters
    assert [(letter.offset, letter.failure.error_class) for letter in letters] == [(0, "expired")]


def test_expired_records_may_be_dropped() -> None:
    queue = machine(dead_letter_expired=False)
    queue.arrive([Arrival(0, expires_ms=50)])
    assert queue.tick(50).dead_letters == []
    assert queue.kept.start == 1


# -- order ------------------------------------------------------------------------------------


def test_failed_key_waits_and_other_keys_continue() -> None:
    queue = machine(Order.KEY, backoff_base_ms=1_000, backoff_cap_ms=1_000)
    queue.arrive([Arrival(0, key=1), Arrival(1, key=1), Arrival(2, key=2), Arrival(3, key=2)])
    assert given(queue.acquire("a", 9, 0)) == [(0, 0, 1), (2, 2, 1)]
    queue.release("a", 0, 0, 1)
    queue.accept("a", 2, 2, 1)
    assert given(queue.acquire("a", 9, 1)) == [(3, 3, 1)]
    queue.tick(5_000)
    assert given(queue.acquire("a", 9, 5_000)) == [(0, 0, 2)]
    queue.accept("a", 0, 0, 5_000)
    assert given(queue.acquire("a", 9, 5_000)) == [(1, 1, 1)]


def test_whole_partition_in_order_has_one_in_flight() -> None:
    queue = machine(Order.PARTITION)
    queue.arrive([Arrival(0), Arrival(1)])
    assert given(queue.acquire("a", 9, 0)) == [(0, 0, 1)]
    assert given(queue.acquire("b", 9, 0)) == []
    queue.reject("a", 0, 0, 0)
    assert given(queue.acquire("b", 9, 0)) == [(1, 1, 1)]


# -- dead letters and administration ----------------------------------------------------------


def test_dead_letters_are_planned_and_then_written() -> None:
    queue = machine()
    queue.arrive_run(0, 2)
    queue.acquire("a", 3, 0)
    queue.reject("a", 0, 1, 0)
    batch = DeadLetterBatch(5, b"t" * 16, 0, 0, (0, 1), 7)
    ops: list[Op] = queue.plan_dead_letters(batch)
    assert queue.kept.dead_letter_batch == batch
    ops += queue.finish_dead_letters()
    assert queue.kept.start == 2
    assert queue.dead_letters() == []
    with pytest.raises(AssertionError):
        queue.plan_dead_letters(batch)


def test_deleted_records_are_finished() -> None:
    queue = machine(Order.KEY)
    queue.arrive([Arrival(offset, key=1) for offset in range(4)])
    queue.acquire("a", 1, 0)
    assert len(queue.move_start(2)) == 1
    assert given(queue.acquire("a", 9, 0)) == [(2, 2, 1)]
    assert queue.move_start(1) == []
    ahead = machine()
    ahead.move_start(50)
    assert ahead.end == 50


def test_refusal_distinguishes_finished_records_from_expired_leases() -> None:
    queue = machine(lock_ms=10)
    queue.arrive_run(0, 1)
    queue.acquire("a", 2, 0)
    queue.accept("a", 0, 0, 0)
    with pytest.raises(Refused, match=ANSWERED_BEFORE):
        queue.accept("a", 0, 0, 0)
    with pytest.raises(Refused, match="the lease has expired"):
        queue.accept("a", 1, 1, 10)


# -- tracebacks -------------------------------------------------------------------------------


def test_traceback_is_kept_only_for_records_that_are_archived() -> None:
    queue = machine(deliveries_max=2)
    queue.arrive_run(0, 1)
    queue.acquire("a", 2, 0)
    queue.release("a", 0, 0, 0, error_class="E", traceback="first")
    assert queue.kept.failures[0].traceback == ""
    (rejected,) = queue.reject("a", 1, 1, 0, error_class="E", traceback="second").dead_letters
    assert rejected.failure.traceback == "second"
    queue.acquire("a", 1, 0)
    (released,) = queue.release("a", 0, 0, 0, error_class="E", traceback="third").dead_letters
    assert released.failure.traceback == "third"


def test_tracebacks_of_a_queue_are_bounded_until_their_copies_are_written() -> None:
    count = TRACEBACKS_MAX // TRACEBACK_MAX
    queue = machine()
    queue.arrive_run(0, count + 1)
    queue.acquire("a", count + 2, 0)
    long = "x" * (TRACEBACK_MAX + 1)
    kept = queue.reject("a", 0, count - 1, 0, traceback=long).dead_letters
    assert {len(one.failure.traceback) for one in kept} == {TRACEBACK_MAX}
    (beyond,) = queue.reject("a", count, count, 0, traceback=long).dead_letters
    assert beyond.failure.traceback == ""
    reloaded = Delivery(queue.policy, QueueState(queue.kept.snapshot()))
    for one in (queue, reloaded):
        one.plan_dead_letters(DeadLetterBatch(5, b"t" * 16, 0, 0, (0,), 7))
        one.finish_dead_letters()
        (after,) = one.reject("a", count + 1, count + 1, 0, traceback=long).dead_letters
        assert after.failure.traceback != ""


def test_due_records_are_kept_as_long_as_retention_keeps_any() -> None:
    holding = Holding()
    holding.came_due(7, 1_000)
    holding.came_due(9, 2_000)
    holding.came_due(3, 10 * STEP_MS)
    assert holding.first(10 * STEP_MS, 5 * STEP_MS) == 3
    assert holding.first(17 * STEP_MS, 5 * STEP_MS) is None
    holding.came_due(8, 20 * STEP_MS)
    assert holding.first(99 * STEP_MS, -1) == 8


def test_log_hold_is_bounded_and_never_too_early() -> None:
    holding = Holding()
    for step in range(2 * STEPS_MAX):
        holding.came_due(1_000 - step, step * STEP_MS)
        assert len(holding._came) <= STEPS_MAX
    now_ms = 2 * STEPS_MAX * STEP_MS
    assert holding.first(now_ms, now_ms) == 1_000 - 2 * STEPS_MAX + 1


def test_first_waiting_delay_is_known() -> None:
    rng = random.Random(6)
    delays = Delays()
    assert delays.first_offset() is None
    waiting = {offset: rng.randint(1, 200_000_000) for offset in rng.sample(range(9_000), 3_000)}
    for offset, due_ms in waiting.items():
        delays.add(due_ms, offset, offset % 10)
    for now_ms in (50_000_000, 50_030_000, 150_000_000):
        for offset, _ in delays.due(now_ms):
            assert waiting.pop(offset) <= now_ms
        assert delays.first_offset() == min(waiting)
        below = sorted(waiting)[len(waiting) // 3]
        delays.forget_below(below)
        waiting = {offset: due_ms for offset, due_ms in waiting.items() if offset >= below}
        assert len(delays) == len(waiting)
        assert delays.first_offset() == below
    assert sorted(offset for offset, _ in delays.due(1 << 40)) == sorted(waiting)
