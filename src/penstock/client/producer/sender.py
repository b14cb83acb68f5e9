"""Sends batches from partition queues to their leaders, with several requests in flight each.

One task wakes when a batch is due, a reply arrived or a deadline passed, and does one atomic step:
one request for each broker carries the batches of all its due partitions. Owns the producer id,
pending connections and metadata refreshes. All queues share the producer id; a queue with a gap
in its sequences gets a new one. `PartitionQueue` decides what may be sent and handles replies.

Queue of batches for one partition: order, sequences and retries. Pure: no I/O, no clock. The
first batches of the queue are in flight or wait for a retry, the rest were never sent. These
rules keep delivery exactly once with an idempotent producer (KIP-98, KIP-360, KIP-679):

- A batch gets its sequence when it is first sent, and keeps it through every retry.
- When a batch fails temporarily, the queue awaits the replies to later batches in flight. Then it
  sends all that are left again, in order and one by one: brokers remember five batches, so no new
  batch may overtake. Meanwhile the broker may answer OUT_OF_ORDER_SEQUENCE_NUMBER to later
  batches; this is not final while an earlier batch is unresolved.
- A batch that fails permanently leaves a gap in the sequence. The queue then asks for a new
  identity and restarts at sequence 0. A batch that the broker may have written cannot get a new
  sequence, since it could be written twice; it fails too.
- Until the broker has confirmed a batch of an identity, it accepts any first sequence. Only one
  batch is in flight until then.
- A batch goes to a new leader only when no batch is in flight to the old one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.client.cluster import METADATA_AGE_MAX_S, Cluster
from penstock.client.connection import Connection
from penstock.client.errors import (
    RETRIABLE,
    STALE_METADATA,
    ConnectionLost,
    DeliveryTimeout,
    RequestTimeout,
    Unreachable,
    code_of,
    refusal,
)
from penstock.client.metadata import TopicPartition
from penstock.client.producer.batch import Acked, Batch, BatchState, PendingRecord, ProducerIdentity
from penstock.client.producer.produce_request import produce_request, produced_rows
from penstock.wire.compression import Codec
from penstock.wire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse
from penstock.wire.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from penstock.wire.records import BATCH_OVERHEAD, Record

# The broker lost the state of this producer, or never received the previous batch.
_LOST_STATE = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
# The leader appended the batch, or may have, although the reply is an error.
_MAYBE_WRITTEN = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
_SEQUENCE_MASK = 0x7FFFFFFF


class PartitionQueue:
    """Batches of one partition that are not delivered yet."""

    def __init__(
        self,
        where: TopicPartition,
        *,
        is_idempotent: bool,
        in_flight_max: int,
        batch_bytes: int,
        linger_s: float,
        delivery_timeout_s: float,
    ) -> None:
        self.where = where
        self.is_idempotent = is_idempotent
        # Without sequences the broker cannot restore the order, so only one may be in flight.
        self.in_flight_max = in_flight_max if is_idempotent else 1
        self.batch_bytes = batch_bytes
        self.linger_s = linger_s
        self.delivery_timeout_s = delivery_timeout_s
        self.batches: deque[Batch] = deque()
        self.size_bytes = 0
        """Bytes of the records of all batches."""
        self.identity: ProducerIdentity | None = None
        self.spent_identity: ProducerIdentity | None = None
        """Last identity whose sequences have a gap here; it must not be set again."""
        self.sequence = 0
        self.retry_at = 0.0
        self.failures = 0
        """Failed tries since the last success; the backoff grows with it."""
        self._in_flight = 0
        self._is_confirmed = not is_idempotent
        """True once the broker has confirmed a batch of this identity."""

    # Adding records.

    def fits_open_batch(self, size_bytes: int) -> bool:
        """True if a record of this size fits in the last batch, which is still open."""
        if not self.batches:
            return False
        last = self.batches[-1]
        return not last.is_closed and last.size_bytes + size_bytes <= self.batch_bytes

    def add(self, record: Record, size_bytes: int, now: float) -> PendingRecord:
        """Adds a record to the last batch, or to a new one."""
        if not self.fits_open_batch(size_bytes):
            self.close_open_batch()
            self.batches.append(Batch(self.where, now))
        batch = self.batches[-1]
        delivery = batch.add(record, size_bytes)
        batch.is_closed = batch.size_bytes >= self.batch_bytes
        self.size_bytes += size_bytes
        return delivery

    def close_open_batch(self) -> None:
        """Closes the last batch, so that it is sent without lingering (flush)."""
        if self.batches:
            self.batches[-1].is_closed = True

    # Sending.

    @property
    def needs_identity(self) -> bool:
        """True if an identity is missing and no batch is in flight under the old one."""
        return self.is_idempotent and self.identity is None and not self._in_flight

    def set_identity(self, identity: ProducerIdentity) -> None:
        assert self.needs_identity
        assert identity != self.spent_identity
        self.identity = identity
        self.sequence = 0
        self._is_confirmed = False

    def due_at(self) -> float | None:
        """Time at which `take` will return a batch; None while it depends on a reply."""
        batch = self._next_waiting()
        if batch is None:
            return None
        if batch.is_closed:
            return self.retry_at
        return max(self.retry_at, batch.created_at + self.linger_s)

    def take(self, node_id: int, now: float) -> Batch | None:
        """Returns the next batch for the leader with its sequence; it is in flight from now on."""
        due = self.due_at()
        if due is None or due > now or (self.is_idempotent and self.identity is None):
            return None
        if self._in_flight and self.batches[0].node_id != node_id:
            return None
        batch = self._next_waiting()
        assert batch is not None
        batch.is_closed = True
        if self.is_idempotent and batch.identity is None:
            batch.number(self.identity, self.sequence)
            self.sequence = self.sequence + len(batch.records) & _SEQUENCE_MASK
        batch.state = BatchState.IN_FLIGHT
        batch.node_id = node_id
        batch.tries += 1
        self._in_flight += 1
        return batch

    def _next_waiting(self) -> Batch | None:
        """Returns the first waiting batch if one more may be in flight."""
        must_be_alone = not self._is_confirmed or (self.batches and self.batches[0].tries > 1)
        if self._in_flight >= (1 if must_be_alone else self.in_flight_max):
            return None
        for batch in self.batches:
            if batch.state is BatchState.FAILED:
                return None
            if batch.state is BatchState.WAITING:
                return batch
        return None

    # Replies.

    def succeeded(self, batch: Batch, acked: Acked) -> None:
        self._in_flight -= 1
        self._is_confirmed = True
        self.failures = 0
        self._resolve(batch, acked)
        self._requeue_failed(0.0)

    def failed(self, batch: Batch, error: Exception, *, was_sent: bool, retry_at: float) -> None:
        """Handles a failed try. `was_sent` with an OSError: the broker may have written it."""
        self._in_flight -= 1
        self.failures += 1
        batch.state = BatchState.FAILED
        batch.last_error = error
        code = error.code if isinstance(error, Refused) else None
        if was_sent and (code is None or code in _MAYBE_WRITTEN):
            batch.may_be_written = True
        if code is ErrorCode.MESSAGE_TOO_LARGE and len(batch.records) > 1:
            self._split(batch)
            retry_at = 0.0
        elif code in _LOST_STATE and self.is_idempotent:
            if batch is self.batches[0]:
                self._drop_identity()
        elif code is not None and code not in RETRIABLE:
            self._fail_batch(batch, error)
        self._requeue_failed(retry_at)

    def expire(self, now: float) -> None:
        """Fails batches that exceed the delivery timeout, unless any batch is in flight."""
        while self.batches and not self._in_flight:
            batch = self.batches[0]
            if batch.created_at + self.delivery_timeout_s > now:
                return
            cause = f": {batch.last_error}" if batch.last_error else ""
            error = DeliveryTimeout(
                f"{len(batch.records)} records for {self.where} could not be delivered "
                f"within {self.delivery_timeout_s:g} s{cause}"
            )
            self._fail_batch(batch, error)
            self._requeue_failed(0.0)

    def deadline(self) -> float | None:
        """Time at which `expire` fails a batch; None: no batch can expire now."""
        if not self.batches or self._in_flight:
            return None
        return self.batches[0].created_at + self.delivery_timeout_s

    def fail_all(self, error: Exception) -> None:
        while self.batches:
            self._resolve(self.batches[0], error)
        self._in_flight = 0

    # Internals.

    def _requeue_failed(self, retry_at: float) -> None:
        """Makes failed batches wait again, in their old order, once none is in flight."""
        self.retry_at = max(self.retry_at, retry_at)
        if self._in_flight:
            return
        must_renumber = self.is_idempotent and self.identity is None
        for batch in list(self._tried()):
            if must_renumber and batch.may_be_written:
                assert batch.last_error is not None
                self._resolve(batch, batch.last_error)
                continue
            batch.state = BatchState.WAITING
            if must_renumber:
                batch.number(None, -1)

    def _resolve(self, batch: Batch, outcome: Acked | Exception) -> None:
        self.batches.remove(batch)
        self.size_bytes -= batch.size_bytes - BATCH_OVERHEAD
        batch.resolve(outcome)

    def _tried(self) -> Iterator[Batch]:
        """Yields batches that were sent at least once; they are always the first ones."""
        for batch in self.batches:
            if batch.tries == 0:
                return
            yield batch

    def _split(self, batch: Batch) -> None:
        """Replaces a batch that the broker refused as too large with two halves."""
        at = self.batches.index(batch)
        self.batches.remove(batch)
        for half in reversed(batch.split()):
            half.state = BatchState.FAILED
            half.tries = batch.tries
            half.may_be_written = batch.may_be_written
            half.last_error = batch.last_error
            self.batches.insert(at, half)

    def _fail_batch(self, batch: Batch, error: Exception) -> None:
        self._resolve(batch, error)
        if batch.identity is not None:
            self._drop_identity()

    def _drop_identity(self) -> None:
        """Drops the identity: sequences restart with a new one, see `_requeue_failed`."""
        self.spent_identity = self.identity or self.spent_identity
        self.identity = None


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
