"""Administration of queues on any leader: describing them, moving their start, forgetting them.

A queue is administered by the leader of its partition: here by a call, elsewhere by a message
(`TellQueue`); questions about many queues go out together, one message to each node.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TypeAlias

from penstock.base.errors import Corrupt, ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.client.errors import code_of
from penstock.coordinator.queues.open_queues import QueueCoordinator, QueueStanding
from penstock.coordinator.runtime.batched_rpc import ask_for_each, leader_of, scatter
from penstock.coordinator.runtime.shard_host import HostContext
from penstock.state.queues.state_shard import QueueKey
from penstock.wire.messages.internal.queues import (
    QueueAnswer,
    QueueCall,
    TellQueueRequest,
    TellQueueResponse,
)

CHANNEL = "queues"
VERSION = 0
TIMEOUT_MS = 15_000
CALLS_MAX = 1_000
NOTHING = -1

Told: TypeAlias = QueueStanding | Refused | None
"""Standing of a queue (None: it has no state), or the reason why it is unknown."""


class ChangeKind(IntEnum):
    """Kind of an administrative call."""

    DESCRIBE = 0
    MOVE = 1
    FORGET = 2
    WAKE = 3


class QueueAdmin:
    """Administration of the queues of the whole cluster."""

    def __init__(self, around: HostContext, queues: QueueCoordinator) -> None:
        self._around = around
        self._queues = queues

    async def describe(self, keys: Sequence[QueueKey]) -> list[Told]:
        return await self._tell([_call(ChangeKind.DESCRIBE, key) for key in keys])

    async def move(self, starts: Sequence[tuple[QueueKey, int]]) -> list[Told]:
        """Restarts queues at the given offsets."""
        return await self._tell([_call(ChangeKind.MOVE, key, start) for key, start in starts])

    async def forget(self, keys: Sequence[QueueKey]) -> list[Told]:
        """Deletes the groups' state in these queues."""
        return await self._tell([_call(ChangeKind.FORGET, key) for key in keys])

    async def wake(self, keys: Sequence[QueueKey]) -> list[Told]:
        """Opens queues on their leaders."""
        return await self._tell([_call(ChangeKind.WAKE, key) for key in keys])

    # -- asking -----------------------------------------------------------------------------

    async def _tell(self, calls: Sequence[QueueCall]) -> list[Told]:
        """Returns one answer for each call; asks every node before it awaits an answer."""
        image = self._around.watcher.image
        return await scatter(
            calls,
            lambda call: leader_of(image, TopicId(call.topic_id), call.partition),
            self._ask,
        )

    async def _ask(self, node_id: int, calls: list[QueueCall]) -> list[Told]:
        if node_id == self._around.peers.node_id:
            return [await self.answer(call) for call in calls]
        return await ask_for_each(
            self._around.peers,
            node_id,
            calls,
            lambda some: TellQueueRequest(calls=list(some)),
            TellQueueResponse,
            told_by,
            at_once=CALLS_MAX,
            channel=CHANNEL,
            version=VERSION,
            timeout_ms=TIMEOUT_MS,
            unreached=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        )

    # -- answering --------------------------------------------------------------------------

    async def answer(self, call: QueueCall) -> Told:
        """Answers a call about a queue whose partition is led here."""
        key = QueueKey(call.group_id, call.topic_id, call.partition)
        try:
            match call.kind:
                case ChangeKind.DESCRIBE:
                    return await self._queues.describe(key)
                case ChangeKind.MOVE:
                    await self._queues.move(key, call.start_offset)
                case ChangeKind.FORGET:
                    await self._queues.forget(key)
                case ChangeKind.WAKE:
                    await self._queues.open(key, creates=False)
                case _:
                    raise Refused(ErrorCode.INVALID_REQUEST, f"unknown kind of call {call.kind}")
        except Refused as refused:
            return refused
        except (Corrupt, OSError) as error:
            return Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        return None

    async def answer_all(self, calls: Iterable[QueueCall]) -> list[QueueAnswer]:
        return [answer_of(await self.answer(call)) for call in calls]


def _call(kind: ChangeKind, key: QueueKey, start: int = NOTHING) -> QueueCall:
    return QueueCall(
        kind=kind,
        group_id=key.group,
        topic_id=TopicId(key.topic_id),
        partition=key.partition,
        start_offset=start,
    )


def answer_of(told: Told) -> QueueAnswer:
    if isinstance(told, Refused):
        return QueueAnswer(error_code=told.code, error_message=told.message)
    if told is None:
        return QueueAnswer(error_code=ErrorCode.NONE)
    return QueueAnswer(
        error_code=ErrorCode.NONE,
        start_offset=told.start_offset,
        leader_epoch=told.leader_epoch,
        lag=told.lag,
    )


def told_by(answer: QueueAnswer) -> Told:
    if answer.error_code:
        return Refused(code_of(answer.error_code), answer.error_message)
    if answer.start_offset == NOTHING:
        return None
    return QueueStanding(answer.start_offset, answer.leader_epoch, answer.lag)
