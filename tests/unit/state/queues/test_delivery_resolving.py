"""Finishing records without a lease, on behalf of an administrator."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.state.queues.delivery import Arrival, Delivery
from penstock.state.queues.delivery_state import QueueState, Snapshot
from penstock.state.queues.policy import Order, QueuePolicy

COUNT = 12
runs = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 4)), max_size=5)


def machine(order: Order = Order.NONE) -> Delivery:
    policy = QueuePolicy(order=order, lock_ms=100, backoff_base_ms=0)
    return Delivery(policy, QueueState(Snapshot(0)))


def take_all(queue: Delivery, now_ms: int = 0) -> list[int]:
    """Leases and accepts everything available."""
    seen: list[int] = []
    while leases := queue.acquire("taker", 100, now_ms).leases:
        for lease in leases:
            seen += range(lease.first, lease.last + 1)
            queue.accept("taker", lease.first, lease.last, now_ms)
    return seen


def test_resolved_record_is_not_delivered() -> None:
    queue = machine()
    queue.arrive_run(0, 9)
    queue.resolve(2, 4)
    assert take_all(queue) == [0, 1, 5, 6, 7, 8, 9]
    assert queue.kept.start == 10


def test_lease_on_it_ends_and_the_rest_of_the_lease_stays() -> None:
    queue = machine()
    queue.arrive_run(0, 9)
    queue.acquire("a", 10, 0)
    queue.resolve(3, 5)
    queue.accept("a", 0, 2, 0)
    queue.accept("a", 6, 6, 0)
    # The rest of the lease still expires at its time.
    queue.tick(200)
    assert take_all(queue, 200) == [7, 8, 9]


def test_next_record_follows_a_resolved_head() -> None:
    queue = machine(Order.KEY)
    queue.arrive(Arrival(offset, key=offset % 2) for offset in range(4))
    queue.acquire("a", 1, 0)
    queue.resolve(0, 0)
    assert take_all(queue) == [1, 2, 3]


def test_resolved_future_records_are_skipped_on_arrival() -> None:
    queue = machine()
    queue.resolve(0, 4)
    queue.arrive_run(0, 9)
    assert take_all(queue) == [5, 6, 7, 8, 9]


def test_resolving_twice_changes_nothing() -> None:
    queue = machine()
    queue.arrive_run(0, 9)
    assert queue.resolve(2, 4).ops
    assert not queue.resolve(2, 4).ops
    assert not queue.resolve(3, 3).ops


@given(st.sampled_from(Order), runs, st.integers(0, COUNT))
def test_each_record_is_either_resolved_or_delivered_in_every_order(
    order: Order, resolved: list[tuple[int, int]], held: int
) -> None:
    queue = machine(order)
    queue.arrive(Arrival(offset, key=offset % 3) for offset in range(COUNT))
    queue.acquire("holder", held, 0)
    gone: set[int] = set()
    for first, more in resolved:
        last = min(first + more, COUNT - 1)
        queue.resolve(first, last)
        gone |= set(range(first, last + 1))
    queue.tick(200)
    assert sorted(take_all(queue, 200)) == sorted(set(range(COUNT)) - gone)
    assert queue.kept.start == COUNT
    assert queue.kept.leased == 0
