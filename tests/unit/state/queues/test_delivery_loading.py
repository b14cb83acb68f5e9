"""Delivery loaded from another leader's state, before the log's records have arrived."""

import msgspec
import pytest

from penstock.state.queues.delivery import Arrival, Delivery
from penstock.state.queues.delivery_state import (
    LOCK_MS_MAX,
    QueueState,
    decode_snapshot,
    encode_ops,
    encode_snapshot,
)
from penstock.state.queues.policy import Order, QueuePolicy

LOCK_MS = 100
COUNT = 4
ORDERS = pytest.mark.parametrize("order", list(Order))


def arrive(queue: Delivery) -> None:
    queue.arrive(Arrival(offset, key=offset) for offset in range(COUNT))


def loaded(order: Order) -> Delivery:
    """A new instance while member `a` holds leases on all records, until 100."""
    policy = QueuePolicy(order=order, lock_ms=LOCK_MS, backoff_base_ms=0)
    before = Delivery(policy, QueueState())
    arrive(before)
    while before.acquire("a", COUNT, 0).leases:
        if order is Order.PARTITION:
            break
    return Delivery(policy, QueueState(decode_snapshot(encode_snapshot(before.kept.snapshot()))))


def drain(queue: Delivery, now_ms: int) -> list[tuple[int, int]]:
    """Leases and accepts everything available: offsets and delivery counts."""
    seen = []
    while leases := queue.acquire("b", 1, now_ms).leases:
        (lease,) = leases
        seen.append((lease.first, lease.delivery_count))
        queue.accept("b", lease.first, lease.last, now_ms)
        queue.tick(now_ms)
    return seen


@ORDERS
def test_lease_that_runs_out_before_its_record_arrives_is_delivered_once(order: Order) -> None:
    queue = loaded(order)
    queue.tick(LOCK_MS)
    assert queue.acquire("b", COUNT, LOCK_MS).leases == (), "nothing has arrived"
    arrive(queue)
    queue.tick(LOCK_MS)
    first = 1 if order is Order.PARTITION else COUNT
    assert drain(queue, LOCK_MS) == [(n, 2 if n < first else 1) for n in range(COUNT)]


@ORDERS
def test_record_that_is_given_back_before_it_arrives_is_delivered_once(order: Order) -> None:
    queue = loaded(order)
    queue.give_back("a", 0, 0, 50)
    assert queue.acquire("b", COUNT, 50).leases == (), "nothing has arrived"
    arrive(queue)
    queue.tick(LOCK_MS)
    first = 1 if order is Order.PARTITION else COUNT
    seen = drain(queue, LOCK_MS)
    assert sorted(seen) == [(n, 2 if 0 < n < first else 1) for n in range(COUNT)]


@ORDERS
def test_record_that_is_released_before_it_arrives_waits_for_its_retry(order: Order) -> None:
    queue = loaded(order)
    queue.release("a", 0, 0, 50, delay_ms=1000)
    arrive(queue)
    queue.tick(LOCK_MS)
    assert 0 not in dict(drain(queue, LOCK_MS))
    queue.tick(1050)
    assert (0, 2) in drain(queue, 1050)


def test_record_is_finished_for_good_before_it_arrives() -> None:
    queue = loaded(Order.NONE)
    queue.tick(LOCK_MS)
    assert queue.finish("a", 0, 1, LOCK_MS).ops
    arrive(queue)
    queue.tick(LOCK_MS)
    assert drain(queue, LOCK_MS) == [(2, 2), (3, 2)]


def test_undelivered_record_cannot_be_settled() -> None:
    queue = loaded(Order.NONE)
    queue.tick(LOCK_MS)
    queue.finish("a", 2, 1 << 60, LOCK_MS)
    arrive(queue)
    queue.arrive_run(COUNT, COUNT)
    queue.tick(LOCK_MS)
    assert sorted(drain(queue, LOCK_MS)) == [(0, 2), (1, 2), (COUNT, 1)]


def test_deadlines_of_a_clock_that_was_ahead_last_no_longer_than_when_they_began() -> None:
    before = Delivery(QueuePolicy(lock_ms=LOCK_MS, backoff_base_ms=0), QueueState())
    before.arrive_run(0, 3)
    ahead_ms = 300_000
    before.acquire("a", 1, ahead_ms)
    before.acquire("a", 1, ahead_ms, lock_ms=5_000)
    before.acquire("a", 2, ahead_ms)
    before.renew("a", 2, 2, ahead_ms, 700)
    before.release("a", 3, 3, ahead_ms, delay_ms=2_000)
    kept = QueueState(decode_snapshot(encode_snapshot(before.kept.snapshot())))
    kept.bound(1_000)
    assert [lease.deadline_ms for lease in kept.leases.values()] == [1_100, 6_000, 1_700]
    assert kept.failures[3].not_before_ms == 3_000
    kept.bound(900_000)
    assert [lease.deadline_ms for lease in kept.leases.values()] == [1_100, 6_000, 1_700]


def test_lease_that_an_older_version_kept_is_read_and_bounded() -> None:
    old = msgspec.msgpack.encode([0, b"", [[0, 3, "a", 1 << 50, 1]]])
    kept = QueueState(decode_snapshot(old))
    kept.bound(1_000)
    assert kept.leases[0].deadline_ms == 1_000 + LOCK_MS_MAX


def test_older_version_reads_the_current_state() -> None:
    class OldLease(msgspec.Struct, array_like=True, frozen=True):
        first: int
        last: int
        member: str
        deadline_ms: int
        delivery_count: int

    class OldLeased(msgspec.Struct, array_like=True, frozen=True, tag="l"):
        leases: tuple[OldLease, ...]

    before = Delivery(QueuePolicy(lock_ms=LOCK_MS), QueueState())
    before.arrive_run(0, 3)
    data = encode_ops(before.acquire("a", 4, 0).ops)
    (op,) = msgspec.msgpack.decode(data, type=tuple[OldLeased, ...])
    assert op.leases == (OldLease(0, 3, "a", LOCK_MS, 1),)
