"""Storage of queue state: the shards of `__share_group_state`, here or on other nodes.

A queue runs on the leader of its partition; its state is stored by the leader of the shard that its
key hashes to: here by a call of the shard's runtime, elsewhere by `KeepQueueState`. Calls about one
queue take effect in the order in which they were made: each other node has one connection for them,
with pipelined requests (`batched_rpc`).

An uncertain outcome (a connection lost in between) is a refusal: the caller reads the state again
before it continues. The states of deleted topics' queues are deleted.

Bounds: about `REQUEST_BYTES` in a request, and those of `batched_rpc`.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.base.ids import TopicId, show_topic_id
from penstock.base.state_machine import Decision, Token
from penstock.client.errors import code_of
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.metadata.image import Image
from penstock.cluster.replication.peer_connections import PEER_ERRORS
from penstock.coordinator.runtime.batched_rpc import BatchedRpc, check_count
from penstock.coordinator.runtime.internal_topics import InternalTopic, InternalTopics
from penstock.coordinator.runtime.shard_host import HostContext, ShardHost, ask
from penstock.coordinator.runtime.shard_runtime import ShardRuntime
from penstock.state.queues.state_shard import QueueKey, StateShard, StoredQueueState
from penstock.wire.messages.internal.queues import (
    KeepQueueStateRequest,
    KeepQueueStateResponse,
    QueueStateAnswer,
    QueueStateCall,
)

STATES = InternalTopic(
    name="__share_group_state",
    partitions="share.coordinator.state.topic.num.partitions",
    replication_factor="share.coordinator.state.topic.replication.factor",
    segment_bytes="share.coordinator.state.topic.segment.bytes",
    min_isr="share.coordinator.state.topic.min.isr",
    configs={"cleanup.policy": "compact", "compression.type": "producer"},
)
CHANNEL = "queue-states"
VERSION = 0
LOAD_BYTES = 5 * 1024 * 1024
REQUEST_BYTES = 1 << 20
TIMEOUT_MS = 15_000
FORGOTTEN_AT_ONCE = 100
SETTLED_SECONDS = 300.0
"""Maximum age of any node's knowledge of the topics."""


class StateRequestKind(IntEnum):
    """Kind of a state request."""

    READ = 0
    DELTA = 1
    SNAPSHOT = 2
    FORGET = 3


def shard_key(key: QueueKey) -> str:
    """Returns the key that determines the shard, as in KIP-932: group, topic id and partition."""
    return f"{key.group}:{show_topic_id(TopicId(key.topic_id))}:{key.partition}"


def decision_of(call: QueueStateCall) -> Callable[[StateShard, Token, int], Decision]:
    """Returns the decision that a call asks of its shard."""
    key = QueueKey(call.group_id, call.topic_id, call.partition)

    def decide(shard: StateShard, token: Token, now_ms: int) -> Decision:
        if call.kind == StateRequestKind.READ:
            return shard.read(key, call.leader_epoch, token, now_ms)
        if call.kind == StateRequestKind.FORGET:
            return shard.forget(key, token, now_ms)
        is_snapshot = call.kind == StateRequestKind.SNAPSHOT
        return shard.write(
            key, call.leader_epoch, call.number, call.payload, is_snapshot, token, now_ms
        )

    return decide


class QueueStateStore:
    """Reads, writes and deletes the states of queues, on any node."""

    def __init__(self, around: HostContext, configs: BrokerConfigs, topics: InternalTopics) -> None:
        self._around = around
        self._topics = topics
        self._rpc: BatchedRpc[_Waiting] = BatchedRpc(
            CHANNEL, self._send, channels=1, size_of=lambda one: one.size, bytes_max=REQUEST_BYTES
        )
        self._loaded: Callable[[], None] = _ignore
        self.host: ShardHost[StateShard] = ShardHost(
            STATES.name,
            around,
            StateShard,
            codec=configs.integer("share.coordinator.state.topic.compression.codec"),
            chunk_bytes=LOAD_BYTES,
            activated=self._activated,
            unreadable=ErrorCode.KAFKA_STORAGE_ERROR,  # A poll must not wait then.
            holds="the state of this queue",
        )

    def on_loaded(self, told: Callable[[], None]) -> None:
        """Registers `told`, called when a shard has been loaded here."""
        self._loaded = told

    async def ensure(self) -> None:
        """Creates the internal topic if it does not exist."""
        await self._topics.ensure(STATES)

    async def run(self) -> None:
        """Loads shards until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.host.run())
            tasks.create_task(self._rpc.run())

    # -- calls ------------------------------------------------------------------------------

    def read(self, key: QueueKey, leader_epoch: int) -> "asyncio.Future[StoredQueueState]":
        """Returns a queue's state to its leader; fences older leaders."""
        return self._call(key, StateRequestKind.READ, leader_epoch)

    def write(
        self, key: QueueKey, leader_epoch: int, number: int, payload: bytes, is_snapshot: bool
    ) -> "asyncio.Future[int]":
        kind = StateRequestKind.SNAPSHOT if is_snapshot else StateRequestKind.DELTA
        return self._call(key, kind, leader_epoch, number, payload)

    def forget(self, key: QueueKey) -> "asyncio.Future[None]":
        return self._call(key, StateRequestKind.FORGET)

    def _call(
        self,
        key: QueueKey,
        kind: StateRequestKind,
        leader_epoch: int = -1,
        number: int = 0,
        payload: bytes = b"",
    ) -> "asyncio.Future[Any]":
        """Raises Refused if it is refused at once, else the future does."""
        call = QueueStateCall(
            kind=kind,
            group_id=key.group,
            topic_id=TopicId(key.topic_id),
            partition=key.partition,
            leader_epoch=leader_epoch,
            number=number,
            payload=payload,
        )
        image = self._around.watcher.image
        index = self.host.index_of(shard_key(key))
        record = image.partition(STATES.name, index)
        if record is not None and record.leader == self._around.peers.node_id:
            return ask(self.host.runtime(index), decision_of(call))
        if record is None or record.leader not in image.brokers:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        waiting = _Waiting(call, asyncio.get_running_loop().create_future())
        if not self._rpc.send(record.leader, waiting):
            raise Refused(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                "too many calls wait for queue state: retry later",
            )
        return waiting.future

    async def _send(self, node_id: int, channel: str, sent: "list[_Waiting]") -> None:
        """Returns once requests are sent: the next ones follow without waiting for answers."""
        request = KeepQueueStateRequest(calls=[one.call for one in sent])
        try:
            connection = await self._around.peers.connection(node_id, channel)
            answer = connection.send(
                request, KeepQueueStateResponse, version=VERSION, timeout_ms=TIMEOUT_MS
            )
        except PEER_ERRORS as error:
            # None of these was sent; queued ones must not overtake them.
            for waiting in (*sent, *self._rpc.withdraw(node_id)):
                waiting.refuse(str(error))
            return
        answer.add_done_callback(_settling(sent))

    def answer_here(self, call: QueueStateCall, answer: Callable[[QueueStateAnswer], None]) -> None:
        """Answers a call of another node, for one of the shards here."""

        def told(reply: Any) -> None:
            answer(answer_of(reply))

        key = QueueKey(call.group_id, call.topic_id, call.partition)
        try:
            if call.kind not in list(StateRequestKind):
                raise Refused(ErrorCode.INVALID_REQUEST, f"unknown kind of call {call.kind}")
            self.host.runtime_of(shard_key(key)).call(decision_of(call), told)
        except Refused as refused:
            told(refused)

    # -- topics that are gone ---------------------------------------------------------------

    def follow(self, before: Image, after: Image) -> None:
        """Called at every change of the image: deletes the state of deleted topics' queues."""
        if before.topics_by_id is after.topics_by_id:
            return
        gone = before.topics_by_id.keys() - after.topics_by_id.keys()
        if gone:
            for runtime, _ in self.host.active():
                self._forget(runtime, gone)

    def _activated(self, runtime: ShardRuntime[StateShard]) -> None:
        """Deletes states of unknown topics: topics may have been deleted while this shard had no
        leader, or may only not be known here yet; those unknown now and still later are gone."""
        self._loaded()
        unknown = self._unknown(runtime)
        if unknown:
            loop = asyncio.get_running_loop()
            loop.call_later(SETTLED_SECONDS, self._look_again, runtime, unknown)

    def _look_again(self, runtime: ShardRuntime[StateShard], unknown: set[TopicId]) -> None:
        self._forget(runtime, unknown & self._unknown(runtime))

    def _unknown(self, runtime: ShardRuntime[StateShard]) -> set[TopicId]:
        if runtime.shard is None:
            return set()
        topics = {TopicId(key.topic_id) for key in runtime.shard.queues()}
        return topics - self._around.watcher.image.topics_by_id.keys()

    def _forget(self, runtime: ShardRuntime[StateShard], topics: set[TopicId]) -> None:
        """Deletes some at a time: there may be many."""
        if runtime.shard is None or not topics:
            return
        gone = [key for key in runtime.shard.queues() if key.topic_id in topics]
        for key in gone[:FORGOTTEN_AT_ONCE]:
            runtime.tell(_forgetting(key))
        if len(gone) > FORGOTTEN_AT_ONCE:
            asyncio.get_running_loop().call_soon(self._forget, runtime, topics)


def _ignore() -> None:
    pass


def _forgetting(key: QueueKey) -> Callable[[StateShard, int], Decision]:
    return lambda shard, now_ms: Decision(shard.forget(key, None, now_ms).records)


def answer_of(reply: "StoredQueueState | Refused | int | None") -> QueueStateAnswer:
    if isinstance(reply, Refused):
        return QueueStateAnswer(error_code=reply.code, error_message=reply.message)
    if isinstance(reply, StoredQueueState):
        return QueueStateAnswer(
            error_code=ErrorCode.NONE,
            number=reply.number,
            snapshot=reply.snapshot,
            deltas=reply.deltas,
        )
    return QueueStateAnswer(error_code=ErrorCode.NONE, number=reply or 0)


def reply_of(call: QueueStateCall, answer: QueueStateAnswer) -> Any:
    """Returns what the shard itself would have replied; raises its refusal."""
    if answer.error_code:
        raise Refused(code_of(answer.error_code), answer.error_message)
    if call.kind == StateRequestKind.READ:
        return StoredQueueState(answer.number, answer.snapshot, tuple(answer.deltas))
    return None if call.kind == StateRequestKind.FORGET else answer.number


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    call: QueueStateCall
    future: "asyncio.Future[Any]"

    @property
    def size(self) -> int:
        return len(self.call.payload)

    def settle(self, answer: QueueStateAnswer) -> None:
        if self.future.done():
            return
        try:
            self.future.set_result(reply_of(self.call, answer))
        except Refused as refused:
            self.future.set_exception(refused)

    def refuse(self, why: str) -> None:
        if not self.future.done():
            self.future.set_exception(Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, why))


def _settling(
    sent: Sequence[_Waiting],
) -> "Callable[[asyncio.Future[KeepQueueStateResponse]], None]":
    def settle(done: "asyncio.Future[KeepQueueStateResponse]") -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            try:
                check_count(done.result().answers, sent)
            except PeerError as wrong:
                error = wrong
        if error is not None:
            for waiting in sent:
                waiting.refuse(str(error))
            return
        for waiting, answer in zip(sent, done.result().answers, strict=True):
            waiting.settle(answer)

    return settle
