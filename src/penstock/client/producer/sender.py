"""Sends batches from partition queues to their leaders, with several requests in flight each.

One task wakes when a batch is due, a reply arrived or a deadline passed, and does one atomic step:
one request for each broker carries the batches of all its due partitions. Owns the producer id,
pending connections and metadata refreshes. All queues share the producer id; a queue with a gap
in its sequences gets a new one. `PartitionQueue` decides what may be sent and handles replies.
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

# The broker lost the state of this producer, or never received the previous batch.
_NETWORK = (Unreachable, ConnectionLost, RequestTimeout)


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """Settings of a producer."""

    acks: int = -1
    """-1: all in-sync replicas; 1: the leader; 0: no reply."""
    is_idempotent: bool = True
    """True for idempotence, which requires acks -1; it is off for acks 0 and 1."""
    codec: Codec = Codec.NONE
    linger_ms: float = 5.0
    batch_bytes: int = 256 * 1024
    """Size at which a batch is sent, before compression."""
    buffer_bytes: int = 32 << 20
    """Limits the bytes of all records that wait or are in flight."""
    request_bytes: int = 1 << 20
    """Size from which a produce request gets no further batch."""
    in_flight_max: int = 5
    """Limits requests in flight to a broker; brokers remember the sequences of five batches."""
    delivery_timeout_ms: int = 120_000
    auto_create: bool = True
    """True if sending to a missing topic asks the broker to create it."""


class Sender:
    """Sends the batches of one producer."""

    def __init__(
        self, cluster: Cluster, config: ProducerConfig, on_buffer_freed: Callable[[], None]
    ) -> None:
        assert 1 <= config.in_flight_max <= 5, "brokers remember five sequences of a producer"
        self.config = config
        self.buffered_bytes = 0
        self.sent_records = 0
        self._cluster = cluster
        self._on_buffer_freed = on_buffer_freed
        self._is_idempotent = config.is_idempotent and config.acks == -1
        self._identity: ProducerIdentity | None = None
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._active: dict[TopicPartition, PartitionQueue] = {}
        """Queues with batches; the least recently served come first."""
        self._in_flight: dict[int, int] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        """Background tasks by name; at most one of each name at a time."""
        self._replies: set[asyncio.Task[None]] = set()
        self._fatal: Exception | None = None
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._loop_ended)

    # Called by the producer.

    def fits_open_batch(self, where: TopicPartition, size_bytes: int) -> bool:
        """True if the record fits in the open batch of this partition."""
        queue = self._queues.get(where)
        return queue is not None and queue.fits_open_batch(size_bytes)

    def add(self, where: TopicPartition, record: Record, size_bytes: int) -> PendingRecord:
        if self._fatal is not None:
            raise self._fatal
        queue = self._queues.get(where)
        if queue is None:
            queue = self._new_queue(where)
        batch_count = len(queue.batches)
        delivery = queue.add(record, size_bytes, self._loop.time())
        self.buffered_bytes += size_bytes
        if batch_count == 0:
            self._active[where] = queue
        if batch_count != len(queue.batches) or queue.batches[-1].is_closed:
            self._wake.set()
        return delivery

    async def flush(self) -> None:
        futures = []
        for queue in self._active.values():
            queue.close_open_batch()
            futures += [batch.future for batch in queue.batches]
        self._wake.set()
        while futures:
            outcomes = await asyncio.gather(*map(asyncio.shield, futures))
            # A batch that was too large was split: wait for its halves.
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

    # The loop: its work between two waits is one atomic step.

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._step(self._loop.time())

    def _loop_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled():
            self._fail(task.exception() or RuntimeError("the sender ended"))

    def _fail(self, cause: BaseException) -> None:
        """Fails all buffered records, and `add` from now on, after a permanent failure."""
        if self._fatal is None:
            self._fatal = cause if isinstance(cause, Exception) else RuntimeError(repr(cause))
        for queue in self._active.values():
            queue.fail_all(self._fatal)
        self._active.clear()
        self.buffered_bytes = 0
        self._on_buffer_freed()

    def _step(self, now: float) -> None:
        if self._active and now - self._cluster.metadata.at > METADATA_AGE_MAX_S:
            self._start_task("refresh", self._refresh())
        due_by_node: dict[int, list[PartitionQueue]] = {}
        next_at: float | None = None
        for queue in list(self._active.values()):
            self._expire(queue, now)
            if not queue.batches:
                continue
            if queue.needs_identity:
                self._assign_identity(queue)
            due = queue.due_at()
            if due is not None and due <= now:
                node_id = self._cluster.metadata.leader_of(queue.where)
                due_by_node.setdefault(node_id, []).append(queue)
                due = None
            for at in (due, queue.deadline()):
                if at is not None and (next_at is None or at < next_at):
                    next_at = at
        for node_id, queues in due_by_node.items():
            if node_id >= 0:
                self._send_to(node_id, queues, now)
            else:
                self._await_leaders(queues)
        self._wake_at(next_at)

    def _send_to(self, node_id: int, queues: list[PartitionQueue], now: float) -> None:
        connection = self._cluster.ready(node_id)
        if connection is None:
            self._start_task(f"connect {node_id}", self._await_connection(node_id))
            return
        while self._in_flight.get(node_id, 0) < self.config.in_flight_max:
            batches: list[Batch] = []
            remaining_bytes = self.config.request_bytes
            for queue in queues:
                batch = queue.take(node_id, now) if remaining_bytes > 0 else None
                if batch is not None:
                    batches.append(batch)
                    remaining_bytes -= batch.size_bytes
                    # Fairness: queues that did not fit come first next time.
                    self._active[queue.where] = self._active.pop(queue.where)
            if not batches:
                return
            self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
            self._send(connection, node_id, batches)

    def _send(self, connection: Connection, node_id: int, batches: list[Batch]) -> None:
        # Written here and not in the task: tasks may start in another order.
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
        task = self._loop.create_task(self._handle_reply(node_id, batches, reply, failure))
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

    # Replies.

    async def _handle_reply(
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
            queue = self._queues[batch.where]
            before = queue.size_bytes
            self._settle(queue, batch, rows.get(batch.where), failure, was_sent=was_sent)
            self._release(queue, before)
        if isinstance(failure, _NETWORK):
            self._start_task("refresh", self._refresh())
        self._wake.set()

    def _rows(self, reply: ProduceResponse) -> dict[TopicPartition, PartitionProduceResponse]:
        known = self._cluster.metadata.topics
        return produced_rows(reply, {info.topic_id: name for name, info in known.items()})

    def _settle(
        self,
        queue: PartitionQueue,
        batch: Batch,
        row: PartitionProduceResponse | None,
        failure: Exception | None,
        *,
        was_sent: bool,
    ) -> None:
        if failure is None and row is None and self.config.acks != 0:
            # A topic that was deleted and created again has a new id; the reply has the old one.
            failure = Refused(ErrorCode.UNKNOWN_TOPIC_ID, f"the reply lacks {batch.where}")
        code = code_of(row.error_code) if row is not None else ErrorCode.NONE
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # Success: the broker has the batch, but no longer its offset.
            row = None
        elif row is not None and code is not ErrorCode.NONE:
            bad = next(iter(row.record_errors), None)
            detail = bad.batch_index_error_message if bad is not None else None
            failure = refusal(row.error_code, detail or row.error_message, about=str(batch.where))
        if failure is None:
            self.sent_records += len(batch.records)
            acked = Acked(row.base_offset, row.log_append_time_ms) if row else Acked(-1, -1)
            queue.succeeded(batch, acked)
            return
        retry_at = self._loop.time() + self._cluster.backoff.delay_s(queue.failures)
        queue.failed(batch, failure, was_sent=was_sent, retry_at=retry_at)
        if isinstance(failure, Refused) and failure.code in STALE_METADATA:
            self._start_task("refresh", self._refresh())

    def _expire(self, queue: PartitionQueue, now: float) -> None:
        deadline = queue.deadline()
        if deadline is not None and deadline <= now:
            before = queue.size_bytes
            queue.expire(now)
            self._release(queue, before)

    def _release(self, queue: PartitionQueue, before: int) -> None:
        self.buffered_bytes -= before - queue.size_bytes
        if not queue.batches:
            self._active.pop(queue.where, None)
        self._on_buffer_freed()

    # Timers and background tasks.

    def _wake_at(self, at: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if at is None else self._loop.call_at(at, self._wake.set)

    def _start_task(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Starts a background task, unless one of that name is running."""
        if name in self._running or self._fatal is not None:
            work.close()
            return
        task = self._running[name] = self._loop.create_task(work)
        task.add_done_callback(lambda done: self._task_ended(name, done))

    def _task_ended(self, name: str, task: "asyncio.Task[None]") -> None:
        del self._running[name]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)
        self._wake.set()

    async def _await_connection(self, node_id: int) -> None:
        try:
            await self._cluster.connection(node_id)
        except _NETWORK as error:
            # Its partitions may have another leader by now; they wait for the refresh.
            for queue in self._active.values():
                if self._cluster.metadata.leader_of(queue.where) == node_id:
                    queue.batches[0].last_error = error
            await self._refresh()

    def _await_leaders(self, queues: list[PartitionQueue]) -> None:
        for queue in queues:
            try:
                self._cluster.known_topic(queue.where.topic)
            except Refused as refused:
                queue.batches[0].last_error = refused
        self._start_task("refresh", self._refresh())

    async def _refresh(self) -> None:
        """Refreshes the metadata, at most once per backoff."""
        await self._cluster.refresh_quietly({where.topic for where in self._active})
        failures = max((queue.failures for queue in self._active.values()), default=0)
        await self._cluster.backoff.wait(failures)

    def _assign_identity(self, queue: PartitionQueue) -> None:
        if self._identity is None or self._identity == queue.spent_identity:
            self._start_task("identify", self._request_identity())
        else:
            queue.set_identity(self._identity)

    async def _request_identity(self) -> None:
        async def ask() -> InitProducerIdResponse:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            reply = await self._cluster.call(request, InitProducerIdResponse)
            if reply.error_code:
                raise refusal(reply.error_code, about="the broker gave no producer id")
            return reply

        reply = await self._cluster.retrying(ask, timeout_ms=self.config.delivery_timeout_ms)
        self._identity = ProducerIdentity(reply.producer_id, reply.producer_epoch)

    def _new_queue(self, where: TopicPartition) -> PartitionQueue:
        queue = self._queues[where] = PartitionQueue(
            where,
            is_idempotent=self._is_idempotent,
            in_flight_max=self.config.in_flight_max,
            batch_bytes=self.config.batch_bytes,
            linger_s=self.config.linger_ms / 1000,
            delivery_timeout_s=self.config.delivery_timeout_ms / 1000,
        )
        return queue
