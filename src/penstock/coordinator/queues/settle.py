"""Settling of leases: acknowledge, release, reject and extend, for every protocol.

A command settles records that one member leases. From a gateway each counts on its own (`settle`):
a refused one, because its lease has expired say, does not affect the rest. Those of a Kafka share
consumer for one partition count together or not at all (`settle_together`). Commands for one queue
are decided in one turn and persisted together; the answer is sent when all of it is persisted.
Queues of other nodes are not here (`router`).
"""

import asyncio
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from penstock.base.errors import Corrupt, ErrorCode, Refused
from penstock.coordinator.queues.open_queue import OpenQueue
from penstock.coordinator.queues.open_queues import QueueCoordinator
from penstock.state.queues.delivery import REJECTED, Delivery, DeliveryOutcome
from penstock.state.queues.state_shard import QueueKey


class SettleAction(IntEnum):
    """Action on leased records."""

    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    EXTEND = 4
    GIVE_BACK = 5
    """Release of records that never reached their consumer: the delivery does not count."""
    FINISH = 6
    """As ACCEPT; an expired lease does not prevent it, unless there is a later one."""


class SettleCommand(NamedTuple):
    """Action on a run of records that one member leases in one queue."""

    key: QueueKey
    member: str
    first: int
    last: int
    verdict: SettleAction
    delay_ms: int | None = None
    """Of a release; None: by the queue's retry policy."""
    lock_ms: int | None = None
    """Of an extension: duration from now; None: by the group's config."""
    error_class: str = ""
    error_message: str = ""
    is_patient: bool = True
    """True if a released record waits, unless the group's policy has no delays."""
    traceback: str = ""
    """Of the error; kept if the record is dead-lettered."""


async def settle(
    queues: QueueCoordinator, rulings: Sequence[SettleCommand]
) -> list[Refused | None]:
    """Returns one answer for each command: None if it is persisted, else why it does not count."""
    by_key: dict[QueueKey, list[int]] = {}
    for at, ruling in enumerate(rulings):
        by_key.setdefault(ruling.key, []).append(at)
    settling = _Settling(rulings)
    for key, places in by_key.items():
        try:
            queue = queues.find(key) or await queues.open(key, creates=False)
            settling.start(queue, places)
        except Refused as refused:
            settling.refuse(places, _lost(key, refused))
        except (Corrupt, OSError) as error:
            settling.refuse(places, Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
    await settling.ended()
    return settling.answers


def settle_together(
    queues: QueueCoordinator, key: QueueKey, rulings: Sequence[SettleCommand]
) -> "asyncio.Future[Refused | None]":
    """Settles commands of one member and queue, all or none; done when persisted, or refused.

    If the queue is open, the decision is made before this returns.
    """
    loop = asyncio.get_running_loop()
    queue = queues.find(key)
    if queue is None:
        return loop.create_task(_open_and_settle(queues, key, rulings))
    future: asyncio.Future[Refused | None] = loop.create_future()
    _settle_together(queue, rulings, future)
    return future


async def _open_and_settle(
    queues: QueueCoordinator, key: QueueKey, rulings: Sequence[SettleCommand]
) -> Refused | None:
    future: asyncio.Future[Refused | None] = asyncio.get_running_loop().create_future()
    try:
        queue = await queues.open(key, creates=False)
    except Refused as refused:
        return _lost(key, refused)
    except (Corrupt, OSError) as error:
        return Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    _settle_together(queue, rulings, future)
    return await future


def _settle_together(
    queue: OpenQueue, rulings: Sequence[SettleCommand], future: "asyncio.Future[Refused | None]"
) -> None:
    def told(refused: Refused | None) -> None:
        if not future.done():
            future.set_result(refused)

    try:
        queue.change(lambda machine, now_ms: rule_together(machine, rulings, now_ms), told)
    except Refused as refused:
        told(refused)


def rule_together(
    machine: Delivery, rulings: Sequence[SettleCommand], now_ms: int
) -> DeliveryOutcome:
    """Applies all commands of one member, or refuses all."""
    outcome = DeliveryOutcome()
    if rulings:
        member = rulings[0].member
        machine.check_held(member, [(one.first, one.last) for one in rulings], now_ms)
    for ruling in rulings:
        _rule(machine, ruling, now_ms, outcome)
    return outcome


def _lost(key: QueueKey, refused: Refused) -> Refused:
    """Returns the refusal for a queue that does not exist: it has handed out nothing."""
    if refused.code is not ErrorCode.GROUP_ID_NOT_FOUND:
        return refused
    return Refused(
        ErrorCode.INVALID_RECORD_STATE, f"group {key.group} holds no lease on this record"
    )


class _Settling:
    """Commands while they are being persisted."""

    def __init__(self, rulings: Sequence[SettleCommand]) -> None:
        self._rulings = rulings
        self.answers: list[Refused | None] = [None] * len(rulings)
        self._left = 1  # One for the start itself: it does not end before the last queue was asked.
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, queue: OpenQueue, places: list[int]) -> None:
        def told(refused: Refused | None) -> None:
            if refused is not None:
                self.refuse(places, refused)
            self._end_one()

        self._left += 1
        try:
            queue.change(lambda machine, now_ms: self._decide(machine, now_ms, places), told)
        except Refused:
            self._left -= 1
            raise

    def refuse(self, places: list[int], refused: Refused) -> None:
        for at in places:
            if self.answers[at] is None:
                self.answers[at] = refused

    async def ended(self) -> None:
        self._end_one()
        await self._done

    def _end_one(self) -> None:
        self._left -= 1
        if not self._left and not self._done.done():
            self._done.set_result(None)

    def _decide(self, machine: Delivery, now_ms: int, places: list[int]) -> DeliveryOutcome:
        outcome = DeliveryOutcome()
        for run in self._runs(places):
            first, last = self._rulings[run[0]], self._rulings[run[-1]]
            try:
                _rule(machine, first._replace(last=last.last), now_ms, outcome)
                continue
            except Refused as refused:
                if len(run) == 1:
                    self.answers[run[0]] = refused
                    continue
            for at in run:
                try:
                    _rule(machine, self._rulings[at], now_ms, outcome)
                except Refused as refused:
                    self.answers[at] = refused
        return outcome

    def _runs(self, places: list[int]) -> list[list[int]]:
        """Merges adjacent runs with the same action, which costs as much as one run."""
        runs: list[list[int]] = []
        before: SettleCommand | None = None
        for at in places:
            ruling = self._rulings[at]
            if before is not None and ruling == before._replace(
                first=before.last + 1, last=ruling.last
            ):
                runs[-1].append(at)
            else:
                runs.append([at])
            before = ruling
        return runs


def _rule(machine: Delivery, ruling: SettleCommand, now_ms: int, outcome: DeliveryOutcome) -> None:
    """Applies a command; refuses it, and changes nothing, if its lease is gone."""
    member, first, last = ruling.member, ruling.first, ruling.last
    match ruling.verdict:
        case SettleAction.ACCEPT:
            part = machine.accept(member, first, last, now_ms)
        case SettleAction.FINISH:
            part = machine.finish(member, first, last, now_ms)
        case SettleAction.RELEASE:
            part = machine.release(
                member,
                first,
                last,
                now_ms,
                delay_ms=ruling.delay_ms,
                is_patient=ruling.is_patient,
                error_class=ruling.error_class,
                error_message=ruling.error_message,
                traceback=ruling.traceback,
            )
        case SettleAction.REJECT:
            part = machine.reject(
                member,
                first,
                last,
                now_ms,
                error_class=ruling.error_class or REJECTED,
                error_message=ruling.error_message,
                traceback=ruling.traceback,
            )
        case SettleAction.EXTEND:
            part = machine.renew(member, first, last, now_ms, ruling.lock_ms)
        case SettleAction.GIVE_BACK:
            part = machine.give_back(member, first, last, now_ms)
    outcome.ops += part.ops
    outcome.dead_letters += part.dead_letters
