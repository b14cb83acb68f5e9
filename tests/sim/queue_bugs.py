"""Planted bugs in queues, one at a time: see `test_queue_planted_bugs`.

`BUGS` has the checker that names each bug, and a seed of a queue run that finds it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from penstock.client.dead_letters import open_messages, redrive
from penstock.coordinator.queues.open_queue import OpenQueue
from penstock.state.queues import delivery, delivery_headers, delivery_state
from penstock.state.queues.delivery import Arrival, Delivery
from penstock.state.queues.delivery_state import Op

Patch = pytest.MonkeyPatch


class QueueBug(NamedTuple):
    plant: Callable[[Patch], None]
    checker: str
    first: int


def records_are_ready_before_they_arrive(patch: Patch) -> None:
    """As it was: a lease that another leader gave ran out before its record was read."""
    patch.setattr(Delivery, "_has_arrived", lambda self, offset: True)


def dead_lettered_messages_repeat_each_other(patch: Patch) -> None:
    """As it was: their deduplication ids were heeded."""
    patch.setattr(delivery_headers, "TOPIC", "penstock-dlq-unknown")


def members_are_answered_before_it_is_kept(patch: Patch) -> None:
    real = OpenQueue._take_in

    def planted(self: OpenQueue, outcome: Any, told: Any) -> None:
        real(self, outcome, None)
        if told is not None:
            told(None)

    patch.setattr(OpenQueue, "_take_in", planted)


def _not_kept(patch: Patch, kind: type[Op]) -> None:
    def planted(self: Delivery, ops: list[Op], op: Op) -> None:
        self.kept.apply(op)
        if not isinstance(op, kind):
            ops.append(op)

    patch.setattr(Delivery, "_keep", planted)


def leases_are_not_kept(patch: Patch) -> None:
    _not_kept(patch, delivery_state.LeasedRange)


def finished_is_not_kept(patch: Patch) -> None:
    _not_kept(patch, delivery_state.Finished)


def dead_lettered_messages_are_not_planned(patch: Patch) -> None:
    _not_kept(patch, delivery_state.DeadLettersPlanned)


def delays_are_ignored(patch: Patch) -> None:
    real = Delivery._admit

    def planted(self: Delivery, arrival: Arrival) -> None:
        real(self, arrival._replace(due_ms=0))

    patch.setattr(Delivery, "_admit", planted)


def deliveries_are_not_counted(patch: Patch) -> None:
    patch.setattr(delivery, "_next_count", lambda failures, offset: 1)


def redrives_forget_what_they_did(patch: Patch) -> None:
    patch.setattr(redrive, "decode_settled_offsets", lambda committed, topic_id: [])
    patch.setattr(open_messages, "decode_settled_offsets", lambda committed, topic_id: [])


def retries_do_not_come(patch: Patch) -> None:
    patch.setattr(Delivery, "_await_retry", lambda self, offset, priority: None)


def one_delivery_more_than_allowed(patch: Patch) -> None:
    real: Any = Delivery._fail

    def planted(self: Delivery, outcome: Any, lease: Any, *rest: Any) -> None:
        right = self.policy
        self.policy = replace(right, deliveries_max=right.deliveries_max + 1)
        real(self, outcome, lease, *rest)
        self.policy = right

    patch.setattr(Delivery, "_fail", planted)


BUGS = [
    QueueBug(records_are_ready_before_they_arrive, "exception", 24),
    QueueBug(dead_lettered_messages_repeat_each_other, "not-redriven", 0),
    QueueBug(members_are_answered_before_it_is_kept, "delivered-twice", 10),
    QueueBug(leases_are_not_kept, "two-holders", 0),
    QueueBug(dead_lettered_messages_are_not_planned, "stuck", 0),
    QueueBug(delays_are_ignored, "early", 2),
    QueueBug(deliveries_are_not_counted, "delivered-twice", 0),
    QueueBug(redrives_forget_what_they_did, "redriven-twice", 32),
    QueueBug(retries_do_not_come, "stuck", 0),
    QueueBug(one_delivery_more_than_allowed, "limit", 1),
    QueueBug(finished_is_not_kept, "redelivered", 0),
]
