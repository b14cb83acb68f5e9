"""Bugs put into the delivery machine on purpose: the model must find each within 200 seeds."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from penstock.state.queues import delivery, delivery_state, key_order
from penstock.state.queues.delivery import Arrival, Delivery, DeliveryOutcome
from penstock.state.queues.delivery_state import DeliveryFailure, LeaseState, Op, QueueState
from penstock.state.queues.policy import Order, QueuePolicy
from tests.property.queue_world import Anomaly, World

if TYPE_CHECKING:
    from array import array

SEEDS = 200
Patch = pytest.MonkeyPatch
Make = Callable[[QueuePolicy, QueueState], Delivery]


def find(make: Make = Delivery, orders: tuple[Order, ...] = tuple(Order)) -> None:
    for seed in range(SEEDS):
        for order in orders:
            try:
                World(seed, order, make).run()
            except (Anomaly, AssertionError, IndexError, KeyError):
                return
    pytest.fail(f"not found in {SEEDS} seeds")


def test_expired_lease_that_is_still_accepted_is_found() -> None:
    class Late(Delivery):
        def _require_held(
            self, member: str, first: int, last: int, now_ms: int
        ) -> list[LeaseState]:
            return super()._require_held(member, first, last, -1)

    find(Late)


def test_acknowledgement_by_another_member_is_found() -> None:
    class Trusting(Delivery):
        def _require_held(
            self, member: str, first: int, last: int, now_ms: int
        ) -> list[LeaseState]:
            for lease in self.kept.leases_within(first, first):
                member = lease.member
            return super()._require_held(member, first, last, now_ms)

    find(Trusting)


def test_lease_that_never_expires_is_found() -> None:
    class Patient(Delivery):
        def _run_out(self, outcome: DeliveryOutcome, lease: LeaseState, now_ms: int) -> None:
            pass

    find(Patient)


def test_forgotten_rest_of_a_split_lease_is_found() -> None:
    class Forgetful(Delivery):
        def _watch_rest(self, last: int) -> None:
            pass

    find(Forgetful)


def test_restarted_delivery_count_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(delivery, "_next_count", lambda failures, offset: 1)
    find()


def test_limit_off_by_one_is_found() -> None:
    class Generous(Delivery):
        def __init__(self, policy: QueuePolicy, kept: QueueState) -> None:
            more = policy.deliveries_max + 1
            super().__init__(
                QueuePolicy(
                    order=policy.order,
                    lock_ms=policy.lock_ms,
                    deliveries_max=more,
                    backoff_base_ms=policy.backoff_base_ms,
                    backoff_cap_ms=policy.backoff_cap_ms,
                ),
                kept,
            )

    find(Generous)


def test_ignored_delay_is_found() -> None:
    class Hasty(Delivery):
        def _admit(self, arrival: Arrival) -> None:
            super()._admit(arrival._replace(due_ms=0))

    find(Hasty)


def test_second_record_of_a_busy_key_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(key_order.KeyQueues, "join", lambda self, key, offset: True)
    find(orders=(Order.KEY,))


def test_key_that_continues_before_its_retry_is_found() -> None:
    class Restless(Delivery):
        def _fail(
            self,
            outcome: DeliveryOutcome,
            lease: LeaseState,
            now_ms: int,
            delay_ms: int | None,
            is_patient: bool,
            error_class: str,
            error_message: str,
            traceback: str = "",
        ) -> None:
            super()._fail(outcome, lease, now_ms, delay_ms, is_patient, error_class, error_message)
            self._gone(lease.first, lease.last)

    find(Restless, (Order.KEY,))


def test_returned_record_out_of_order_is_found() -> None:
    class Pushy(Delivery):
        def _make_ready_in_turn(self, offset: int, priority: int) -> None:
            self._make_ready(offset, priority)

    find(Pushy, (Order.KEY,))


def test_record_leased_twice_is_found() -> None:
    class Blind(Delivery):
        def _is_waiting(self, offset: int) -> bool:
            return not self.kept.is_settled(offset)

    find(Blind, (Order.KEY,))


def test_dead_letter_lost_in_a_crash_is_found() -> None:
    class Careless(Delivery):
        def dead_letters(self) -> list[delivery.DeadLetter]:
            return []

    find(Careless)


def test_redelivered_archived_record_is_found() -> None:
    class Undead(Delivery):
        def _archive(
            self,
            outcome: DeliveryOutcome,
            offset: int,
            failure: DeliveryFailure,
            traceback: str = "",
        ) -> None:
            super()._archive(outcome, offset, failure)
            self._make_ready(offset, 0)

    find(Undead)


def test_unpersisted_operation_is_found() -> None:
    class Silent(Delivery):
        def _keep(self, ops: list[Op], op: Op) -> None:
            self.kept.apply(op)
            if not isinstance(op, delivery_state.Released):
                ops.append(op)

    find(Silent)


def test_returned_lease_that_counts_is_found() -> None:
    class Counting(Delivery):
        def give_back(self, member: str, first: int, last: int, now_ms: int) -> DeliveryOutcome:
            return self.release(member, first, last, now_ms, delay_ms=0)

    find(Counting)


def test_dead_letter_batch_forgotten_before_its_write_is_found() -> None:
    class Hasty(Delivery):
        def plan_dead_letters(self, planned: delivery_state.DeadLetterBatch) -> list[Op]:
            self.kept.dead_letter_batch = planned
            return []

    find(Hasty)


def test_retry_lost_in_a_crash_is_found() -> None:
    class Dropping(Delivery):
        def _await_retry(self, offset: int, priority: int) -> None:
            pass

    find(Dropping)


def test_shifted_arrival_times_are_found() -> None:
    class Shifted(Delivery):
        def arrive_timed(self, first: int, times: "array[int]") -> None:
            super().arrive_timed(first, times[-1:] + times[:-1])

    find(Shifted, (Order.NONE,))


def test_readmitted_known_range_is_found() -> None:
    class Unaware(Delivery):
        def _admit_run(self, first: int, last: int) -> Iterator[tuple[int, int]]:
            list(super()._admit_run(first, last))
            return iter([(first, last)])

    find(Unaware, (Order.NONE,))
