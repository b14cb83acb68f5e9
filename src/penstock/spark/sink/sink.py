"""Sink `penstock`: tasks write, the driver commits.

At least once: each task writes with an idempotent producer. A task that Spark retries writes again,
and consumers see records immediately.

Exactly once: task n of query q writes in the transaction `penstock-q-n`, records the batch in the
ledger in the same transaction, and leaves it open. The driver's `commit` stores the commit intent
with all these transactions (`commit_intent`), then ends them (`commit`). Failures:

- A retried task restarts the transaction, which fences the earlier attempt and aborts its records.
  Records of a zombie attempt never become visible.
- The driver dies before it has stored the intent: nothing is committed, and the batch runs again.
- The driver dies later: Spark runs the batch again, tasks find the intent and write nothing, and
  the driver commits the remaining transactions. So the repeated batch need not produce the same
  rows: tables or the user's code may have changed.
- A transaction of the intent cannot be committed any more: a speculative attempt began after the
  winning one had finished, or the driver came back after `transaction.timeout.ms`. Then the query
  fails and the batch runs again: tasks whose ledger shows the batch skip it, the others write
  again. Only in this case must the same rows be in the same task both times. Planned offsets
  guarantee it (`range_planning`); `rand()`, or rows distributed by arrival, would break it.

A batch write in transactions has a ledger only if `txnAppId` and `txnVersion` identify the write,
as in `foreachBatch`; otherwise its job id is new every time.
"""

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.client.admin.admin import TOPIC as TOPIC_CONFIGS
from penstock.client.admin.admin import Admin
from penstock.client.producer.identity import ProducerIdentity
from penstock.client.producer.transaction import OpenTransaction, begin, end, identify
from penstock.runtime.clock import SystemClock
from penstock.runtime.random import SystemRandom
from penstock.spark.connection import BlockingClient, blocking_client
from penstock.spark.option_values import OptionError, nearest
from penstock.spark.settings import HEADERS, WriteSettings
from penstock.spark.sink import fault_points
from penstock.spark.sink.commit import TaskResult, abort_all, commit_all
from penstock.spark.sink.commit_intent import has_commit_intent
from penstock.spark.sink.committed_batches import (
    CommittedBatch,
    ensure_ledger,
    next_uncommitted_batch,
    record_committed_batch,
    transactional_id_of,
)

_log = logging.getLogger("penstock.spark")

_POLICY = "cleanup.policy"
_COMPACT = "compact"
_BATCH_PROPERTY = "streaming.sql.batchId"
_QUERY_PROPERTY = "sql.streaming.queryId"
_CHUNK_BYTES = 8 << 20
_COLUMN_TYPES = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    HEADERS: ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    def __init__(
        self, settings: WriteSettings, schema: StructType, is_complete: bool = False
    ) -> None:
        """`is_complete` is True for output mode complete: each batch has the whole result."""
        check_rows(schema, settings)
        if is_complete:
            check_upserts(schema, settings)
        self.settings = settings

    def write(self, iterator: Iterator[Any]) -> TaskResult:
        context = _task()
        entry = None
        name = None
        if self.settings.is_exactly_once:
            entry = CommittedBatch(
                _property(context, _QUERY_PROPERTY),
                context.partitionId(),
                int(_property(context, _BATCH_PROPERTY)),
            )
            name = transactional_id_of(entry.query_id, entry.task)
        return _write(self.settings, iterator, context.partitionId(), name, entry)

    def commit(self, messages: list[TaskResult | None], batchId: int) -> None:
        commit_all(self.settings.access, messages)

    def abort(self, messages: list[TaskResult | None], batchId: int) -> None:
        abort_all(self.settings.access, messages)


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    def __init__(self, settings: WriteSettings, schema: StructType, overwrite: bool) -> None:
        check_rows(schema, settings)
        if overwrite:
            raise OptionError("unsupported mode 'overwrite': write with mode 'append'")
        self.settings = settings
        self.job_id = SystemRandom().random_bytes(8).hex()

    def write(self, iterator: Iterator[Any]) -> TaskResult:
        task = _task().partitionId()
        if not self.settings.is_exactly_once:
            return _write(self.settings, iterator, task, None, None)
        write_id = self.settings.write_id
        if write_id is None:
            return _write(
                self.settings, iterator, task, transactional_id_of(self.job_id, task), None
            )
        entry = CommittedBatch(write_id[0], task, write_id[1])
        return _write(
            self.settings, iterator, task, transactional_id_of(entry.query_id, task), entry
        )

    def commit(self, messages: list[TaskResult | None]) -> None:
        commit_all(self.settings.access, messages)

    def abort(self, messages: list[TaskResult | None]) -> None:
        abort_all(self.settings.access, messages)


def check_rows(schema: StructType, settings: WriteSettings) -> None:
    """Refuses a schema that cannot be written."""
    names = [field.name for field in schema.fields]
    if "value" not in names:
        close = nearest("value", names)
        hint = f"; did you mean {close!r}?" if close else ""
        raise OptionError(f"missing column 'value'{hint}")
    if settings.topic is None and "topic" not in names:
        raise OptionError("missing topic: set the option 'topic', or add a column 'topic'")
    if settings.keeps_timestamp and "timestamp" not in names:
        raise OptionError("missing column 'timestamp', which includeTimestamp needs")
    for field in schema.fields:
        if field.name == "timestamp" and not settings.keeps_timestamp:
            continue
        allowed = _COLUMN_TYPES.get(field.name)
        found = field.dataType.simpleString()
        if allowed is not None and found not in allowed:
            raise OptionError(f"column {field.name!r} must be {' or '.join(allowed)}, not {found}")


def check_upserts(schema: StructType, settings: WriteSettings) -> None:
    """Refuses rows that cannot replace earlier ones of their key; prepares their topic."""
    if "key" not in schema.names:
        raise OptionError(
            "missing column 'key': output modes update and complete write a result again whenever "
            "it changes, so rows need a key by which the last record is the current one"
        )
    if settings.topic is not None:
        client = blocking_client(settings.access)
        topic = settings.topic
        client.retry(lambda: _ensure_compacted(client, topic))


async def _ensure_compacted(client: BlockingClient, topic: str) -> None:
    """Creates the topic of a changing result, or refuses one that keeps every version."""
    cluster = client.cluster
    if topic not in cluster.metadata.topics:
        await cluster.refresh((topic,))
    if topic not in cluster.metadata.topics:
        try:
            await Admin(cluster).create_topic(topic, configs={_POLICY: _COMPACT})
        except Refused as refused:
            if refused.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        return
    try:
        found = await Admin(cluster).describe_configs(TOPIC_CONFIGS, topic, [_POLICY])
    except Refused as refused:
        if refused.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:  # Writing does not need it.
            return
        raise
    policy = ",".join(config.value or "" for config in found if config.name == _POLICY)
    if _COMPACT not in policy:
        raise OptionError(
            f"topic {topic!r} has cleanup.policy {policy}, so it would hold every version of a "
            f"changing result: run `penstock topic alter {topic} -c cleanup.policy=compact`, or "
            "write to another topic"
        )


# Run in tasks.


def _task() -> Any:
    context = TaskContext.get()
    assert context is not None, "Spark writes in tasks"
    return context


def _property(context: Any, name: str) -> str:
    found = context.getLocalProperty(name)
    if found is None:
        raise OptionError(
            f"Spark did not set {name}, which exactly-once needs; set 'delivery' to at-least-once"
        )
    return str(found)


def _write(
    settings: WriteSettings,
    batches: Iterator[Any],
    task: int,
    transactional_id: str | None,
    entry: CommittedBatch | None,
) -> TaskResult:
    chunks = _chunks(batches)
    first = next(chunks, None)
    if first is None:
        return TaskResult(task, 0, entry=entry)
    client = blocking_client(settings.access)
    if transactional_id is None:
        identity = client.retry(lambda: identify(client.cluster, None, 0))
        return TaskResult(task, _send_batches(client, settings, identity, None, first, chunks))
    # Checked before `begin`, which would abort a transaction that is still to be committed.
    if entry is not None and client.retry(lambda: _has_commit_intent(client, entry)):
        return TaskResult(task, 0, entry=entry, has_commit_intent=True)
    name = transactional_id
    txn = client.retry(lambda: begin(client.cluster, name, settings.txn_timeout_ms))
    # Checked after `begin`: from here on no earlier attempt can change the ledger.
    if entry is not None and client.retry(lambda: _is_committed(client, entry)):
        return TaskResult(task, 0, entry=entry)
    is_sent = False
    try:
        rows = _send_batches(client, settings, txn.identity, txn, first, chunks)
        fault_points.reach(fault_points.TASK_SENT)
        if entry is not None:
            client.retry(lambda: record_committed_batch(client.cluster, txn, entry))
        is_sent = True
        fault_points.reach(fault_points.TASK_WRITTEN)
    finally:
        if not is_sent:
            _abort_quietly(client, txn)
    return TaskResult(task, rows, txn, entry)


async def _has_commit_intent(client: BlockingClient, entry: CommittedBatch) -> bool:
    await ensure_ledger(client.cluster)
    return await has_commit_intent(client.cluster, entry.query_id, entry.batch_id)


async def _is_committed(client: BlockingClient, entry: CommittedBatch) -> bool:
    return await next_uncommitted_batch(client.cluster, entry.query_id, entry.task) > entry.batch_id


def _send_batches(
    client: BlockingClient,
    settings: WriteSettings,
    identity: ProducerIdentity,
    txn: OpenTransaction | None,
    first: Any,
    rest: Iterator[Any],
) -> int:
    # Imported only in tasks: the process that commits does not need it.
    from penstock.spark.sink.batch_sender import BatchSender
    from penstock.spark.sink.row_batches import RowBatches

    def count_partitions(topic: str) -> int:
        info = client.retry(lambda: client.cluster.topic(topic, auto_create=True))
        return len(info.partitions)

    row_batches = RowBatches(
        settings,
        identity,
        is_transactional=txn is not None,
        partition_count=count_partitions,
        now_ms=SystemClock().now_ms,
    )
    sender = BatchSender(client.cluster, txn, settings.access.retry_timeout_ms)
    rows = 0
    chunk: Any | None = first
    while chunk is not None:
        rows += chunk.num_rows
        batches = list(row_batches.partition_batches(chunk))
        client.run(sender.send(batches))
        chunk = next(rest, None)
    client.run(sender.finish())
    return rows


def _chunks(batches: Iterator[Any]) -> Iterator[Any]:
    """Joins Spark's Arrow batches to chunks of about `_CHUNK_BYTES` for larger record batches."""
    held: list[Any] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size >= _CHUNK_BYTES:
            yield pa.concat_batches(held)
            held, size = [], 0
    if held:
        yield pa.concat_batches(held) if len(held) > 1 else held[0]


def _abort_quietly(client: BlockingClient, txn: OpenTransaction) -> None:
    """Aborts, so that read_committed consumers need not wait for the transaction's timeout."""
    try:
        client.run(end(client.cluster, txn, committed=False))
    except (Refused, PeerError, OSError) as error:
        _log.warning("%s was not aborted: %s", txn, error)
