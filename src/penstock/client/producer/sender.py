"""Gets batches from their lanes to the partitions' leaders, several requests in flight each.

One task wakes when a batch is due, an answer came or a deadline passed, and does one atomic step:
batches of all due partitions of a broker leave in one request. Owns the producer id (one for all
lanes; a lane whose numbering has a hole gets a new one), connections being awaited and metadata
being renewed. Leaves to `PartitionQueue` what may be sent and what an answer means.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.client.cluster import METADATA_AGE_MAX_S, Cluster
from penstock.client.connection import Connection
from penstock.client.errors import (
    STALE_METADATA,
    ConnectionLost,
    RequestTimeout,
    Unreachable,
    code_of,
    refusal,
)
from penstock.client.metadata import TopicPartition
from penstock.client.producer.batch import Acked, Batch, PendingRecord, ProducerIdentity
from penstock.client.producer.partition_queue import PartitionQueue
from penstock.client.producer.produce_request import produce_request, produced_rows
from penstock.wire.compression import Codec
from penstock.wire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse
from penstock.wire.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from penstock.wire.records import Record

_NETWORK = (Unreachable, ConnectionLost, RequestTimeout)


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    acks: int = -1
    """-1: all in-sync replicas; 1: the leader; 0: no answer wanted."""
    is_idempotent: bool = True
    """Needs acks -1; off for acks 0 and 1."""
    codec: Codec = Codec.NONE
    linger_ms: float = 5.0
    batch_bytes: int = 256 * 1024
    """A batch is sent when it reaches this, before compression."""
    buffer_bytes: int = 32 << 20
    """What may wait or be in flight in all."""
    request_bytes: int = 1 << 20
    """A produce request takes no further batch beyond this."""
    in_flight_max: int = 5
    """Requests per broker; five is as far as brokers remember sequences."""
    delivery_timeout_ms: int = 120_000
    auto_create: bool = True
    """Whether sending to a topic that does not exist asks the broker to create it."""


class Sender:
    def __init__(
        self, cluster: Cluster, config: ProducerConfig, on_room: Callable[[], None]
    ) -> None:
        assert 1 <= config.in_flight_max <= 5, "brokers remember five sequences of a producer"
        self.config = config
        self.buffered_bytes = 0
        self.sent_records = 0
        self._cluster = cluster
        self._on_room = on_room
        self._is_idempotent = config.is_idempotent and config.acks == -1
        self._identity: ProducerIdentity | None = None
        self._lanes: dict[TopicPartition, PartitionQueue] = {}
        self._busy: dict[TopicPartition, PartitionQueue] = {}
        """Lanes that hold batches; those served longest ago come first."""
        self._in_flight: dict[int, int] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        """Background work by name: at most one of a kind at a time."""
        self._replies: set[asyncio.Task[None]] = set()
        self._fatal: Exception | None = None
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._ended)

    # What the producer uses.

    def has_room(self, where: TopicPartition, size_bytes: int) -> bool:
        """Whether a batch of this partition is begun that would take the record."""
        lane = self._lanes.get(where)
        return lane is not None and lane.has_room(size_bytes)

    def add(self, where: TopicPartition, record: Record, size_bytes: int) -> PendingRecord:
        if self._fatal is not None:
            raise self._fatal
        lane = self._lanes.get(where)
        if lane is None:
            lane = self._new_lane(where)
        batch_count = len(lane.batches)
        delivery = lane.add(record, size_bytes, self._loop.time())
        self.buffered_bytes += size_bytes
        if batch_count == 0:
            self._busy[where] = lane
        if batch_count != len(lane.batches) or lane.batches[-1].is_closed:
            self._wake.set()
        return delivery

    async def flush(self) -> None:
        futures = []
        for lane in self._busy.values():
            lane.close_open()
            futures += [batch.future for batch in lane.batches]
        self._wake.set()
        while futures:
            outcomes = await asyncio.gather(*map(asyncio.shield, futures))
            # The halves of a batch that was too large are batches of their own.
            futures = [
                half.future
                for outcome in outcomes
                if not isinstance(outcome, (Acked, Exception))
                for half in outcome
            ]

    async def close(self, *, drain: bool) -> None:
        if drain and self._fatal is None:
            await self.flush()
        self._wake_at(None)
        self._fail(ConnectionLost("the producer was closed before the record was delivered"))
        tasks = [self._task, *self._replies, *self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # The loop: everything it does between two waits is one atomic step.

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._step(self._loop.time())

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled():
            self._fail(task.exception() or RuntimeError("the sender ended"))

    def _fail(self, cause: BaseException) -> None:
        """A failure that no retry can heal: everything buffered fails, and so does `add`."""
        if self._fatal is None:
            self._fatal = cause if isinstance(cause, Exception) else RuntimeError(repr(cause))
        for lane in self._busy.values():
            lane.fail_all(self._fatal)
        self._busy.clear()
        self.buffered_bytes = 0
        self._on_room()

    def _step(self, now: float) -> None:
        if self._busy and now - self._cluster.metadata.at > METADATA_AGE_MAX_S:
            self._start("refresh", self._refresh())
        due_by_node: dict[int, list[PartitionQueue]] = {}
        next_at: float | None = None
        for lane in list(self._busy.values()):
            self._expire(lane, now)
            if not lane.batches:
                continue
            if lane.needs_identity:
                self._identify(lane)
            due = lane.due_at()
            if due is not None and due <= now:
                node_id = self._cluster.metadata.leader_of(lane.where)
                due_by_node.setdefault(node_id, []).append(lane)
                due = None
            for at in (due, lane.deadline()):
                if at is not None and (next_at is None or at < next_at):
                    next_at = at
        for node_id, lanes in due_by_node.items():
            if node_id >= 0:
                self._send_to(node_id, lanes, now)
            else:
                self._await_leaders(lanes)
        self._wake_at(next_at)

    def _send_to(self, node_id: int, lanes: list[PartitionQueue], now: float) -> None:
        connection = self._cluster.ready(node_id)
        if connection is None:
            self._start(f"connect {node_id}", self._await_connection(node_id))
            return
        while self._in_flight.get(node_id, 0) < self.config.in_flight_max:
            batches: list[Batch] = []
            room_bytes = self.config.request_bytes
            for lane in lanes:
                batch = lane.take(node_id, now) if room_bytes > 0 else None
                if batch is not None:
                    batches.append(batch)
                    room_bytes -= batch.size_bytes
                    # Fairness: those that did not fit in come first next time.
                    self._busy[lane.where] = self._busy.pop(lane.where)
            if not batches:
                return
            self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
            self._send(connection, node_id, batches)

    def _send(self, connection: Connection, node_id: int, batches: list[Batch]) -> None:
        # The request is written here, not in the task: tasks may start in another order.
        reply: asyncio.Future[ProduceResponse] | None = None
        failure: Exception | None = None
        try:
            request = self._request(batches)
            if self.config.acks == 0:
                connection.post(request)
            else:
                reply = connection.send(request, ProduceResponse)
        except (*_NETWORK, Refused) as error:
            failure = error
        task = self._loop.create_task(self._finish(node_id, batches, reply, failure))
        self._replies.add(task)
        task.add_done_callback(self._replies.discard)

    def _request(self, batches: list[Batch]) -> ProduceRequest:
        codec = self.config.codec
        return produce_request(
            [(batch.where, memoryview(batch.encode(codec))) for batch in batches],
            acks=self.config.acks,
            timeout_ms=self._cluster.config.request_timeout_ms,
            topic_id_of=lambda name: self._cluster.known_topic(name).topic_id,
        )

    # Answers.

    async def _finish(
        self,
        node_id: int,
        batches: list[Batch],
        reply: "asyncio.Future[ProduceResponse] | None",
        failure: Exception | None,
    ) -> None:
        was_sent = failure is None
        rows: dict[TopicPartition, PartitionProduceResponse] = {}
        if reply is not None:
            try:
                rows = self._rows(await reply)
            except (*_NETWORK, PeerError) as error:
                failure = error
        self._in_flight[node_id] -= 1
        if self._fatal is not None:
            return
        if isinstance(failure, PeerError):
            self._fail(failure)
            return
        for batch in batches:
            lane = self._lanes[batch.where]
            before = lane.size_bytes
            self._settle(lane, batch, rows.get(batch.where), failure, was_sent=was_sent)
            self._release(lane, before)
        if isinstance(failure, _NETWORK):
            self._start("refresh", self._refresh())
        self._wake.set()

    def _rows(self, reply: ProduceResponse) -> dict[TopicPartition, PartitionProduceResponse]:
        known = self._cluster.metadata.topics
        return produced_rows(reply, {info.topic_id: name for name, info in known.items()})

    def _settle(
        self,
        lane: PartitionQueue,
        batch: Batch,
        row: PartitionProduceResponse | None,
        failure: Exception | None,
        *,
        was_sent: bool,
    ) -> None:
        if failure is None and row is None and self.config.acks != 0:
            # A topic deleted and created again has a new id; the answer names one we forgot.
            failure = Refused(ErrorCode.UNKNOWN_TOPIC_ID, f"no answer about {batch.where}")
        code = code_of(row.error_code) if row is not None else ErrorCode.NONE
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # A success whose offset the broker no longer remembers.
            row = None
        elif row is not None and code is not ErrorCode.NONE:
            bad = next(iter(row.record_errors), None)
            detail = bad.batch_index_error_message if bad is not None else None
            failure = refusal(row.error_code, detail or row.error_message, about=str(batch.where))
        if failure is None:
            self.sent_records += len(batch.records)
            acked = Acked(row.base_offset, row.log_append_time_ms) if row else Acked(-1, -1)
            lane.succeeded(batch, acked)
            return
        retry_at = self._loop.time() + self._cluster.backoff.delay_s(lane.failures)
        lane.failed(batch, failure, was_sent=was_sent, retry_at=retry_at)
        if isinstance(failure, Refused) and failure.code in STALE_METADATA:
            self._start("refresh", self._refresh())

    def _expire(self, lane: PartitionQueue, now: float) -> None:
        deadline = lane.deadline()
        if deadline is not None and deadline <= now:
            before = lane.size_bytes
            lane.expire(now)
            self._release(lane, before)

    def _release(self, lane: PartitionQueue, before: int) -> None:
        self.buffered_bytes -= before - lane.size_bytes
        if not lane.batches:
            self._busy.pop(lane.where, None)
        self._on_room()

    # What the loop waits for.

    def _wake_at(self, at: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if at is None else self._loop.call_at(at, self._wake.set)

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Runs background work, unless work of that name runs already."""
        if name in self._running or self._fatal is not None:
            work.close()
            return
        task = self._running[name] = self._loop.create_task(work)
        task.add_done_callback(lambda done: self._finished(name, done))

    def _finished(self, name: str, task: "asyncio.Task[None]") -> None:
        del self._running[name]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)
        self._wake.set()

    async def _await_connection(self, node_id: int) -> None:
        try:
            await self._cluster.connection(node_id)
        except _NETWORK as error:
            # Its partitions may have another leader meanwhile; until we know, they wait.
            for lane in self._busy.values():
                if self._cluster.metadata.leader_of(lane.where) == node_id:
                    lane.batches[0].last_error = error
            await self._refresh()

    def _await_leaders(self, lanes: list[PartitionQueue]) -> None:
        for lane in lanes:
            try:
                self._cluster.known_topic(lane.where.topic)
            except Refused as refused:
                lane.batches[0].last_error = refused
        self._start("refresh", self._refresh())

    async def _refresh(self) -> None:
        """Renews the metadata, at most once per backoff."""
        await self._cluster.refresh_quietly({where.topic for where in self._busy})
        failures = max((lane.failures for lane in self._busy.values()), default=0)
        await self._cluster.backoff.wait(failures)

    def _identify(self, lane: PartitionQueue) -> None:
        if self._identity is None or self._identity == lane.spent:
            self._start("identify", self._get_identity())
        else:
            lane.identify(self._identity)

    async def _get_identity(self) -> None:
        async def ask() -> InitProducerIdResponse:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            reply = await self._cluster.call(request, InitProducerIdResponse)
            if reply.error_code:
                raise refusal(reply.error_code, about="the broker gave no producer id")
            return reply

        reply = await self._cluster.retrying(ask, timeout_ms=self.config.delivery_timeout_ms)
        self._identity = ProducerIdentity(reply.producer_id, reply.producer_epoch)

    def _new_lane(self, where: TopicPartition) -> PartitionQueue:
        lane = self._lanes[where] = PartitionQueue(
            where,
            is_idempotent=self._is_idempotent,
            in_flight_max=self.config.in_flight_max,
            batch_bytes=self.config.batch_bytes,
            linger_s=self.config.linger_ms / 1000,
            delivery_timeout_s=self.config.delivery_timeout_ms / 1000,
        )
        return lane
