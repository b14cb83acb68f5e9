"""Produce (api 0), versions 3-13.

One record batch v2 for each partition, appended at once; the reply is parked, so that a pipelined
producer overlaps with the disk. acks=1 waits until every batch is durable on this node, acks=all
until it is committed (durable on every in-sync replica). Both wait at most `timeout_ms`, within the
interval of the listener's sweep. acks=0 gets no reply; as in Kafka, an error closes its connection.
v7 zstd; v9 flexible; v10 names the current leader (KIP-951); v13 topic ids.

acks=all needs `min.insync.replicas`: with fewer it is refused before the append
(NOT_ENOUGH_REPLICAS), and answered NOT_ENOUGH_REPLICAS_AFTER_APPEND if they become fewer while it
waits. A node that may be fenced from the cluster (`membership`) accepts no writes.

Batches are checked by header and CRC and not decompressed, unless the topic's config requires it
(compacted topics need keys; `compression.type` may require another codec). Then a worker inspects
them while the connection waits, and they are appended afterwards in the same order. The same holds
for batches that begin a transaction on their partition, while its coordinator verifies them
(`transactional_produce`).
"""

import asyncio
from collections.abc import Awaitable, Collection, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.backpressure import slow_down
from penstock.broker.api.call import Call
from penstock.broker.api.context import ProduceContext
from penstock.broker.api.coordinator_calls import may_txn
from penstock.broker.api.data.schema_validation import check_schemas
from penstock.broker.api.data.transactional_produce import TransactionalBatches, is_open, outside
from penstock.broker.api.response_rows import leader_elsewhere, led_partition
from penstock.broker.api.route_row import Operation
from penstock.cluster.metadata.image import INTERNAL_TOPICS
from penstock.cluster.replication.partition import Partition, ProduceRules
from penstock.wire import records
from penstock.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock.wire.records import BatchHeader

if TYPE_CHECKING:
    from penstock.wire.messages.fetch import NodeEndpoint

ZSTD = 4
TRANSACTIONAL = 0x10
TOPIC_IDS_SINCE = 13
ZSTD_SINCE = 7
NO_TIMESTAMP = -1
UNPACKED_BYTES_MIN = 8 << 20
UNPACKED_RATIO_MAX = 64
"""A batch may decompress to this size or this multiple of its size, against bombs."""
REST_AFTER_BOMB = 9
"""After a decompression bomb, decompression pauses for this multiple of the time to detect it."""
RECORDS_NAMED_MAX = 100
"""Limits the records of a refused batch that the reply names."""
NOT_YET = ErrorCode.REQUEST_TIMED_OUT
"""Error code of a row while its batch is not committed."""


class RefusedRecords(Refused):
    """Refusal of a batch because of some of its records, which the reply names (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, indexes: Iterable[int]) -> None:
        super().__init__(code, message)
        self.rows = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index in islice(indexes, RECORDS_NAMED_MAX)
        ]


class PendingProduce:
    """Reply that waits until its batches are committed."""

    __slots__ = ("call", "response", "waiting")

    def __init__(self, call: Call, response: ProduceResponse) -> None:
        self.call = call
        self.response = response
        self.waiting = 1  # for the appends: no reply before the last one

    def committed(self, row: object, code: ErrorCode) -> None:
        assert isinstance(row, PartitionProduceResponse)
        row.error_code = code
        if code is not ErrorCode.NONE:
            row.base_offset = -1
            row.log_append_time_ms = -1
        self.waiting -= 1
        if self.waiting == 0 and not self.call.is_done:
            self.call.reply(self.response)

    def time_out(self) -> None:
        """Replies at the timeout: rows of uncommitted batches have NOT_YET."""
        self.call.reply(self.response)


def produce(ctx: ProduceContext, call: Call, request: ProduceRequest) -> Awaitable[Any] | None:
    looks = _looks(ctx, call, request)
    admission = None
    if request.transactional_id is not None:
        admission = _admission(ctx, call, request, request.transactional_id)
    if looks or not (admission is None or admission.is_granted()):
        _keep_batches(request)
        if admission is not None:
            # The task may be cancelled before it has started.
            call.when_abandoned(admission.close)
        return _produce_slowly(ctx, call, request, looks, admission)
    admitted: Collection[int] = ()
    if admission is not None:
        admitted = admission.admitted()
        admission.close()
    _append_all(ctx, call, request, {}, call.started, admitted)
    return None


def _append_all(
    ctx: ProduceContext,
    call: Call,
    request: ProduceRequest,
    prepared: dict[int, memoryview | Refused],
    now_s: float,
    admitted: Collection[int] = (),
) -> None:
    """Appends all batches; replies now or when the last one is committed."""
    rows: list[TopicProduceResponse] = []
    pending = PendingProduce(call, ProduceResponse(rows))
    has_moved = False
    acks = request.acks
    now_ms = ctx.clock.now_ms()
    is_fenced = now_s >= ctx.membership.valid_until
    in_txn = request.transactional_id is not None
    for topic in request.topic_data:
        answers: list[PartitionProduceResponse] = []
        rows.append(TopicProduceResponse(topic.name, topic.topic_id, answers))
        for data in topic.partition_data:
            row = PartitionProduceResponse(data.index, 0, -1)
            answers.append(row)
            try:
                if acks not in (-1, 0, 1):
                    raise Refused(ErrorCode.INVALID_REQUIRED_ACKS)
                partition = _partition(ctx, call, topic, data.index)
                if is_fenced:
                    raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                if (
                    acks < 0
                    and partition.leader_state is not None
                    and partition.leader_state.is_under_min
                ):
                    raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS)
                if in_txn:
                    _check_transaction(ctx, call, request, partition, data, prepared, admitted)
                end = _append(ctx, call, partition, data, prepared, row, now_ms, in_txn)
            except Refused as refused:
                row.error_code = refused.code
                row.error_message = refused.message
                if isinstance(refused, RefusedRecords):
                    row.record_errors = refused.rows
                if refused.code is ErrorCode.INVALID_TIMESTAMP:
                    # Tells a gateway on another node, whose clock is wrong, what time it is.
                    row.log_append_time_ms = now_ms
                ctx.metrics.count_error("Produce", refused.code)
                has_moved |= refused.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
                continue
            except OSError as error:
                # The log has truncated or fenced the partial write.
                row.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                ctx.metrics.count_error("Produce", row.error_code)
                row.error_message = f"the broker could not write: {error.strerror}"
                row.base_offset = -1
                continue
            wait = partition.when_written if acks > 0 else partition.when_committed
            if acks and not wait(end, pending, row):
                row.error_code = NOT_YET
                pending.waiting += 1
    pending.waiting -= 1
    if has_moved:
        _show_leaders(ctx, call, pending.response)
    if ctx.partitions.pressure.is_on:
        slow_down(ctx, call, pending.response)
    if acks == 0:
        if any(row.error_code for topic_row in rows for row in topic_row.partition_responses):
            call.hang_up()
        else:
            call.finish_silently()
    elif pending.waiting == 0:
        call.reply(pending.response)
    else:
        call.when_overdue(request.timeout_ms / 1000, pending.time_out)


def _show_leaders(ctx: ProduceContext, call: Call, response: ProduceResponse) -> None:
    """Names the leaders of partitions of other nodes, which saves a Metadata request (KIP-951)."""
    endpoints: dict[int, NodeEndpoint] = {}
    for topic in response.responses:
        known = ctx.image.topics_by_id.get(topic.topic_id)
        name = topic.name or (known.name if known is not None else "")
        for row in topic.partition_responses:
            if row.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            row.current_leader = leader_elsewhere(
                ctx, name, row.index, call.caller.listener, endpoints
            )
    response.node_endpoints = list(endpoints.values())


def _partition(ctx: ProduceContext, call: Call, topic: TopicProduceData, index: int) -> Partition:
    name = topic.name
    if call.version >= TOPIC_IDS_SINCE:
        known = ctx.image.topics_by_id.get(topic.topic_id)
        if known is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
        name = known.name
    needs = call.needs
    if not ctx.authorize(call, needs.operation, needs.resource, name):
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if name in INTERNAL_TOPICS:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"only the broker may write to {name}")
    return led_partition(ctx, name, index)


def _append(
    ctx: ProduceContext,
    call: Call,
    partition: Partition,
    data: PartitionProduceData,
    prepared: dict[int, memoryview | Refused],
    row: PartitionProduceResponse,
    now_ms: int,
    in_txn: bool,
) -> int:
    """Checks and appends one batch, fills the row, and returns the end offset to wait for."""
    ready = prepared.get(id(data)) if prepared else None
    if isinstance(ready, Refused):
        raise ready
    batch = ready if ready is not None else data.records
    if not batch:
        raise Refused(ErrorCode.INVALID_RECORD, "missing records: send one batch per partition")
    if ctx.partitions.pressure.is_on:
        _check_pressure(ctx, partition)
    header = records.check_batch(batch)
    rules = partition.rules
    if header.attributes & TRANSACTIONAL and not in_txn:
        raise Refused(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "missing transactional id: a transactional batch needs one",
        )
    _check(header, len(batch), rules, call.version, now_ms)
    if rules.append_time:
        records.stamp_append_time(batch, now_ms)
        header = records.read_header(batch)
    appended = partition.append(batch, header, now_ms)
    if rules.append_time:
        row.log_append_time_ms = appended.max_timestamp if appended.duplicate else now_ms
    row.base_offset = appended.base_offset
    row.log_start_offset = partition.log.start_offset
    metrics = ctx.metrics
    if appended.duplicate:
        metrics.duplicates.value += 1
    else:
        metrics.records_in.value += header.count
        metrics.bytes_in.value += len(batch)
        traffic = metrics.traffic[partition.topic]
        traffic.records_in += header.count
        traffic.bytes_in += len(batch)
    return appended.last_offset + 1


def _check_pressure(ctx: ProduceContext, partition: Partition) -> None:
    pressure = ctx.partitions.pressure
    if pressure.refusal is not None:
        partition.mark_unwritable()
    pressure.check(partition.topic, partition.index)


def _check(header: BatchHeader, size: int, rules: ProduceRules, version: int, now_ms: int) -> None:
    """Checks a batch by its header against the rules of the topic. Raises Refused."""
    if size > rules.message_bytes_max:
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {size} bytes exceeds max.message.bytes {rules.message_bytes_max}",
        )
    attributes = header.attributes
    if attributes & 7 == ZSTD and version < ZSTD_SINCE:
        raise Refused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            "zstd needs Produce version 7: upgrade the client, or use another codec",
        )
    if not rules.append_time and (newest := header.max_timestamp) != NO_TIMESTAMP:
        # Only the header of a single-record batch identifies the record.
        indexes = range(1 if header.count == 1 else 0)
        if newest - now_ms > rules.timestamp_after_max_ms:
            raise RefusedRecords(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {newest} is more than message.timestamp.after.max.ms in the future",
                indexes,
            )
        if now_ms - header.base_timestamp > rules.timestamp_before_max_ms:
            raise RefusedRecords(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {header.base_timestamp} is older than "
                "message.timestamp.before.max.ms allows",
                indexes,
            )


# -- transactions -----------------------------------------------------------------------------


def _admission(
    ctx: ProduceContext, call: Call, request: ProduceRequest, transactional_id: str
) -> TransactionalBatches:
    """Returns the batches that the transaction coordinator must verify."""
    admission = TransactionalBatches(ctx, call, transactional_id)
    if may_txn(ctx, call, Operation.WRITE, transactional_id):
        for topic in request.topic_data:
            for data in topic.partition_data:
                try:
                    admission.consider(data, _partition(ctx, call, topic, data.index))
                except Refused:
                    continue
    return admission


def _check_transaction(
    ctx: ProduceContext,
    call: Call,
    request: ProduceRequest,
    partition: Partition,
    data: PartitionProduceData,
    prepared: dict[int, memoryview | Refused],
    admitted: Collection[int],
) -> None:
    """Checks right before the append that the transaction of a batch, if any, is open."""
    batch = data.records
    if batch is None or len(batch) < records.BATCH_OVERHEAD:
        return
    header = records.read_header(batch)
    if not header.attributes & TRANSACTIONAL or isinstance(prepared.get(id(data)), Refused):
        return
    if not may_txn(ctx, call, Operation.WRITE, request.transactional_id or ""):
        raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if id(data) not in admitted and not is_open(partition, header):
        raise outside()


# -- inspection of batches ----------------------------------------------------------------------


def _looks(
    ctx: ProduceContext, call: Call, request: ProduceRequest
) -> list[tuple[PartitionProduceData, Partition]]:
    """Returns the batches that must be decompressed before the append, with their partitions."""
    if not ctx.partitions.any_look_inside:
        return []
    found: list[tuple[PartitionProduceData, Partition]] = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            try:
                partition = _partition(ctx, call, topic, data.index)
            except Refused:
                continue
            rules, batch = partition.rules, data.records
            # A batch that is too large anyway is refused without decompression.
            if rules.look_inside and batch is not None and len(batch) <= rules.message_bytes_max:
                found.append((data, partition))
    return found


def _keep_batches(request: ProduceRequest) -> None:
    """Copies every batch, since the receive buffer is reused once the handler returns."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))


async def _produce_slowly(
    ctx: ProduceContext,
    call: Call,
    request: ProduceRequest,
    looks: list[tuple[PartitionProduceData, Partition]],
    admission: TransactionalBatches | None,
) -> None:
    """Inspects batches on a worker and verifies transactions, then appends all batches."""
    prepared: dict[int, memoryview | Refused] = {}
    try:
        for data, partition in looks:
            assert data.records is not None
            rules = partition.rules
            try:
                if rules.needs_schemas:
                    bytes_max = _unpacked_bytes_max(data.records)
                    await check_schemas(ctx, partition.topic, data.records, rules, bytes_max)
                # Few at a time: decompressed batches may be much larger than received ones.
                async with ctx.inspecting:
                    prepared[id(data)] = await _look(ctx, data.records, rules)
            except Refused as refused:
                # Without traceback: its frames hold this one and the decompressed batch.
                prepared[id(data)] = refused.with_traceback(None)
        if admission is not None:
            await admission.ask()
            prepared.update(admission.refused)
        if not call.is_done:
            admitted = admission.admitted() if admission is not None else ()
            now_s = asyncio.get_running_loop().time()
            _append_all(ctx, call, request, prepared, now_s, admitted)
    finally:
        if admission is not None:
            admission.close()


async def _look(ctx: ProduceContext, batch: memoryview, rules: ProduceRules) -> memoryview:
    """Inspects a batch on a worker. After a bomb the next one waits, to limit their CPU time."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    try:
        return await ctx.workers.run(_look_inside, batch, rules)
    except Refused as refused:
        if refused.code is ErrorCode.MESSAGE_TOO_LARGE:
            await asyncio.sleep(REST_AFTER_BOMB * (loop.time() - began_s))
        raise


def _unpacked_bytes_max(batch: memoryview) -> int:
    bytes_max = max(UNPACKED_BYTES_MIN, UNPACKED_RATIO_MAX * len(batch))
    return min(bytes_max, records.DECODED_BYTES_MAX)


def _look_inside(batch: memoryview, rules: ProduceRules) -> memoryview:
    """Checks keys and recompresses the batch with the topic's codec. Runs on a worker."""
    header = records.check_batch(batch)
    columns = records.decode(batch, bytes_max=_unpacked_bytes_max(batch))
    if rules.keys_required and columns.has_null_key:
        raise RefusedRecords(
            ErrorCode.INVALID_RECORD,
            "a compacted topic accepts only records with a key",
            (index for index, start in enumerate(columns.key_starts) if start < 0),
        )
    if rules.codec is None or header.attributes & 7 == rules.codec:
        return batch
    return memoryview(
        records.encode(
            list(columns),
            codec=rules.codec,
            level=rules.level,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=records.is_transactional(header.attributes),
        )
    )
