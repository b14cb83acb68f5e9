"""Routing of receive and settle to queues on any node, for the protocols of this node.

A queue is served by the leader of its partition: here by a call (`receive`, `settle`), elsewhere by
a message.

A receive from queues that are all led here is one attempt, which keeps its place among the waiting
consumers. A receive from other nodes first asks each leader in turn, beginning with another one
each time, until one has records. If none does, all are asked to wait, and the first answer with
records is used; the remaining waits are cancelled, and records leased meanwhile are released,
uncounted. So are all records if the caller disconnects. Partitions without a leader, or whose
leader is changing, are retried while there is time; the reason is returned only if no other queue
is left.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.base.retry import Backoff
from penstock.coordinator.queues import receive
from penstock.coordinator.queues import settle as queue_settling
from penstock.coordinator.queues.open_queues import QueueCoordinator
from penstock.coordinator.queues.queue_rpc import (
    QueueRpc,
    asked_by,
    rows_of,
    ruling_received,
)
from penstock.coordinator.queues.receive import ReceiveRequest, Taken
from penstock.coordinator.queues.settle import SettleAction, SettleCommand
from penstock.coordinator.runtime.batched_rpc import leader_of, scatter
from penstock.coordinator.runtime.shard_host import HostContext
from penstock.state.queues.state_shard import QueueKey
from penstock.wire.messages.internal.queues import (
    RulingAnswer,
    SettleLeasesRequest,
    SettleLeasesResponse,
    TakeFromQueuesRequest,
    TakeFromQueuesResponse,
)

PAUSE_SECONDS = (0.1, 0.5)
"""Pause after refused partitions: their leaders may be changing."""
SETTLE_SECONDS = 5.0
MOVING = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.FENCED_STATE_EPOCH,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
"""The queue, or the node that stores its state, is moving or may be: a leader with a damaged log is
replaced if there is another replica."""
UNKNOWN_OUTCOME = Refused(
    ErrorCode.REQUEST_TIMED_OUT,
    "the leader changed while the message was being settled, and there is no lease now: either it "
    "was settled, or its lease ended and it is delivered again",
)
SLICE_MS = 1_000
"""Wait for the remaining queues while some cannot be asked."""


class QueueRouter:
    """Queues of the whole cluster, for receive and settle."""

    def __init__(self, around: HostContext, queues: QueueCoordinator) -> None:
        self._around = around
        self._queues = queues
        self._lines = QueueRpc(around.peers)
        self._backoff = Backoff(around.random, *PAUSE_SECONDS)
        self._turn = 0
        self._left: dict[asyncio.Task[Any], None] = {}
        """Abandoned requests: records that they bring are released."""
        self._waiting: dict[str, asyncio.Task[Taken]] = {}
        """Members of other nodes that wait here."""

    # -- taking -----------------------------------------------------------------------------

    async def take(
        self,
        keys: Sequence[QueueKey],
        wanted: ReceiveRequest,
        on_wait: Callable[[], None] = receive.nothing,
    ) -> Taken:
        """Leases records of one group and topic to a member, as soon as there are any.

        `on_wait` is called before it waits, perhaps more than once; not if there are records.
        """
        loop = asyncio.get_running_loop()
        deadline, tries = loop.time() + wanted.wait_ms / 1000, 0
        taken = await self._look(keys, wanted, on_wait)
        # A timer may fire a little early: less than a millisecond is not worth another attempt.
        while not taken.found and (wait_ms := round((deadline - loop.time()) * 1000)) > 0:
            on_wait()
            if taken.refused or taken.is_partial:
                await asyncio.sleep(min(self._backoff.delay_s(tries), wait_ms / 1000))
                tries += 1
                wait_ms = min(wait_ms, SLICE_MS)
            by_node, leaderless = self._by_leader(keys)
            if by_node:
                taken = await self._wait_for_first(by_node, replace(wanted, wait_ms=wait_ms))
            elif not any(refused.code in MOVING for refused in leaderless.refused.values()):
                taken = leaderless  # The topic is gone.
                break
            taken.refused |= leaderless.refused
        if wanted.wait_ms and 0 < len(taken.refused) < len(keys) and not taken.found:
            # The first refusal ended the wait at all nodes: further ones may refuse, too.
            taken = await self._look(keys, replace(wanted, wait_ms=0), on_wait)
        if len(taken.refused) < len(keys):
            taken.refused.clear()
        return taken

    async def _look(
        self, keys: Sequence[QueueKey], wanted: ReceiveRequest, on_wait: Callable[[], None]
    ) -> Taken:
        """Returns the records of the first leader that has any; each time begins with another one.

        Waits only if all queues are led here and can be asked.
        """
        by_node, taken = self._by_leader(keys)
        nodes = list(by_node)
        if nodes == [self._around.peers.node_id] and not taken.refused:
            return await receive.take(
                self._queues, keys, wanted, on_wait=on_wait, partial_waits=False
            )
        if wanted.wait_ms:
            wanted = replace(wanted, wait_ms=0)
        self._turn += 1
        start = self._turn % len(nodes) if nodes else 0
        for node in nodes[start:] + nodes[:start]:
            some = await self._take_at(node, by_node[node], wanted)
            taken.refused |= some.refused
            taken.is_partial |= some.is_partial
            if some.found:
                taken.found = some.found
                break
        return taken

    async def open(self, keys: Sequence[QueueKey], wanted: ReceiveRequest) -> None:
        """Creates a group's offset in all queues whose leaders can be reached; `wanted` has no
        records."""
        by_node, _ = self._by_leader(keys)
        await asyncio.gather(*(self._take_at(node, some, wanted) for node, some in by_node.items()))

    def _by_leader(self, keys: Sequence[QueueKey]) -> tuple[dict[int, list[QueueKey]], Taken]:
        by_node: dict[int, list[QueueKey]] = {}
        leaderless = Taken()
        for key in keys:
            try:
                by_node.setdefault(self._leader_of(key), []).append(key)
            except Refused as refused:
                leaderless.refused[key] = refused
        return by_node, leaderless

    def _leader_of(self, key: QueueKey) -> int:
        return leader_of(self._around.watcher.image, TopicId(key.topic_id), key.partition)

    def _take_at(
        self, node_id: int, keys: Sequence[QueueKey], wanted: ReceiveRequest
    ) -> Coroutine[Any, Any, Taken]:
        if node_id == self._around.peers.node_id:
            return receive.take(self._queues, keys, wanted)
        return self._take_elsewhere(node_id, keys, wanted)

    async def _take_elsewhere(
        self, node_id: int, keys: Sequence[QueueKey], wanted: ReceiveRequest
    ) -> Taken:
        """Returns the answer of another node; releases its records if the caller is gone."""
        task = asyncio.get_running_loop().create_task(self._lines.take(node_id, keys, wanted))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._leave(self._give_back(node_id, task, wanted))
            raise

    async def _give_back(
        self, node_id: int, task: "asyncio.Task[Taken]", wanted: ReceiveRequest
    ) -> None:
        if wanted.wait_ms:
            await self._lines.end(node_id, wanted.member)
        rulings = _returning(await task, wanted.member)
        if rulings:
            await self._settle_at(node_id, rulings)

    async def _wait_for_first(
        self, by_node: dict[int, list[QueueKey]], wanted: ReceiveRequest
    ) -> Taken:
        """Waits at all nodes at once; the first answer with records wins."""
        if len(by_node) == 1:
            ((node, keys),) = by_node.items()
            return await self._take_at(node, keys, wanted)
        loop = asyncio.get_running_loop()
        tasks = [
            loop.create_task(self._take_at(node, keys, wanted)) for node, keys in by_node.items()
        ]
        taken, is_answered = Taken(), False
        try:
            for next_done in asyncio.as_completed(tasks):
                some = await next_done
                taken.refused |= some.refused
                taken.is_partial |= some.is_partial
                taken.found = some.found
                if some.found or some.refused:
                    break  # It has records, or must be asked elsewhere.
            is_answered = True
        finally:
            for task in tasks:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            for node, late in zip(by_node, done, strict=True):
                # Two nodes may have answered at once, or the caller left after one did.
                if isinstance(late, Taken) and not (is_answered and late.found is taken.found):
                    self._return(node, late, wanted)
        return taken

    def _return(self, node_id: int, taken: Taken, wanted: ReceiveRequest) -> None:
        """Releases records that came too late."""
        rulings = _returning(taken, wanted.member)
        if rulings:
            self._leave(self._settle_at(node_id, rulings))

    def _leave(self, work: Coroutine[Any, Any, object]) -> None:
        """Runs work in the background, without a waiting caller."""
        task = asyncio.get_running_loop().create_task(work)
        self._left[task] = None
        task.add_done_callback(lambda done: self._left.pop(done, None))

    # -- settling ---------------------------------------------------------------------------

    async def settle(self, rulings: Sequence[SettleCommand]) -> list[Refused | None]:
        """Returns one answer for each command: None if it is persisted, else why it does not count.

        Leases move with their partition to its next leader: while that changes, it is retried. If
        the retry finds no lease, the first attempt may have taken effect: the outcome is unknown.
        """
        loop = asyncio.get_running_loop()
        deadline, tries = loop.time() + SETTLE_SECONDS, 0
        answers = await self._settle(rulings)
        while loop.time() < deadline:
            again = [
                at
                for at, refused in enumerate(answers)
                if refused is not None and refused.code in MOVING
            ]
            if not again:
                break
            await self._backoff.wait(tries)
            tries += 1
            found = await self._settle([rulings[at] for at in again])
            for at, answer in zip(again, found, strict=True):
                is_gone = answer is not None and answer.code is ErrorCode.INVALID_RECORD_STATE
                answers[at] = UNKNOWN_OUTCOME if is_gone else answer
        return answers

    async def _settle(self, rulings: Sequence[SettleCommand]) -> list[Refused | None]:
        return await scatter(rulings, lambda one: self._leader_of(one.key), self._settle_at)

    async def _settle_at(
        self, node_id: int, rulings: Sequence[SettleCommand]
    ) -> list[Refused | None]:
        if node_id == self._around.peers.node_id:
            return await queue_settling.settle(self._queues, rulings)
        return await self._lines.settle(node_id, rulings)

    # -- answering other nodes --------------------------------------------------------------

    async def answer_take(self, request: TakeFromQueuesRequest) -> TakeFromQueuesResponse:
        """Receives for a member of another node, from queues that are led here."""
        keys, wanted = asked_by(request)
        task = asyncio.get_running_loop().create_task(receive.take(self._queues, keys, wanted))
        self._waiting[wanted.member] = task
        try:
            # Shielded, to distinguish who was cancelled: this call, or its caller.
            taken = await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                task.cancel()
                raise
            taken = Taken()  # Its wait was cancelled: its leases are released by now.
        finally:
            if self._waiting.get(wanted.member) is task:
                del self._waiting[wanted.member]
        return TakeFromQueuesResponse(
            error_code=ErrorCode.NONE, is_partial=taken.is_partial, rows=rows_of(taken)
        )

    async def answer_settle(self, request: SettleLeasesRequest) -> SettleLeasesResponse:
        for member in request.ended:
            task = self._waiting.get(member)
            if task is not None:
                task.cancel()
        rulings: list[SettleCommand] = []
        answers: list[Refused | None] = []
        places: list[int] = []
        for sent in request.rulings:
            try:
                rulings.append(ruling_received(sent))
                places.append(len(answers))
                answers.append(None)
            except Refused as refused:
                answers.append(refused)
        if rulings:
            found = await queue_settling.settle(self._queues, rulings)
            for at, answer in zip(places, found, strict=True):
                answers[at] = answer
        return SettleLeasesResponse(
            answers=[
                RulingAnswer(error_code=ErrorCode.NONE)
                if answer is None
                else RulingAnswer(error_code=answer.code, error_message=answer.message)
                for answer in answers
            ]
        )


def _returning(taken: Taken, member: str) -> list[SettleCommand]:
    """Returns commands that release all leases, uncounted."""
    return [
        SettleCommand(key, member, lease.first, lease.last, SettleAction.GIVE_BACK)
        for key, found in taken.found.items()
        for lease in found.leases
    ]
