"""The sink `penstock`: tasks write, the driver commits.

At least once: tasks write with an idempotent producer each; a task that Spark runs again writes
again, and readers see records at once.

Exactly once: task n of query q writes in the transaction `penstock-q-n`, notes the batch in the
ledger in that same transaction, and leaves it open; the driver's `commit` notes which transactions
they are (`decisions`), then ends them all (`committing`). Whatever dies, whenever it dies:

- A task that runs again begins the transaction anew, which fences the earlier attempt and aborts
  what it wrote. A zombie can write nothing that is ever seen.
- The driver dies before it has decided: nothing is committed, and the batch runs again.
- The driver dies later: Spark runs the batch again, tasks see that it is decided and write nothing,
  and the driver ends what is not ended yet. So it does not matter whether the rows would be the
  same ones: tables may have changed, and the user's code.
- A transaction that is decided cannot be ended any more: a speculative attempt began after the one
  that counts had ended, or the driver came back after `transaction.timeout.ms`. That fails the
  query, and the batch runs again: tasks whose ledger shows the batch skip it, the others write
  again. Here the same rows must be in the same task both times. Offsets are planned so
  (`planning`); `rand()`, or rows dealt out by arrival, would not do.

A batch write in transactions has a ledger only where `txnAppId` and `txnVersion` say which write it
is, as in `foreachBatch`; else its job id is new every time.
"""

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from penstock.base.errors import PeerError, Refused
from penstock.client.producer.identity import ProducerIdentity
from penstock.client.producer.transaction import OpenTransaction, begin, end, identify
from penstock.runtime.clock import SystemClock
from penstock.runtime.random import SystemRandom
from penstock.spark.connection import Link, link_to
from penstock.spark.option_values import OptionError
from penstock.spark.settings import WriteSettings
from penstock.spark.sink.commit import TaskResult, abort_all, commit_all
from penstock.spark.sink.commit_intent import is_decided
from penstock.spark.sink.committed_batches import (
    CommittedBatch,
    ensure_ledger,
    next_batch,
    record_batch,
    txn_name,
)
from penstock.spark.sink.schema import check_rows

_log = logging.getLogger("penstock.spark")

_BATCH_PROPERTY = "streaming.sql.batchId"
_QUERY_PROPERTY = "sql.streaming.queryId"
_CHUNK_BYTES = 8 << 20


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    def __init__(self, settings: WriteSettings, schema: StructType) -> None:
        check_rows(schema, settings)
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
            name = txn_name(entry.query_id, entry.task)
        return _write(self.settings, iterator, context.partitionId(), name, entry)

    def commit(self, messages: list[TaskResult | None], batchId: int) -> None:
        commit_all(self.settings.access, messages)

    def abort(self, messages: list[TaskResult | None], batchId: int) -> None:
        abort_all(self.settings.access, messages)


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    def __init__(self, settings: WriteSettings, schema: StructType, overwrite: bool) -> None:
        check_rows(schema, settings)
        if overwrite:
            raise OptionError("a topic cannot be overwritten: write with mode 'append'")
        self.settings = settings
        self.job_id = SystemRandom().random_bytes(8).hex()

    def write(self, iterator: Iterator[Any]) -> TaskResult:
        task = _task().partitionId()
        if not self.settings.is_exactly_once:
            return _write(self.settings, iterator, task, None, None)
        write_id = self.settings.write_id
        if write_id is None:
            return _write(self.settings, iterator, task, txn_name(self.job_id, task), None)
        entry = CommittedBatch(write_id[0], task, write_id[1])
        return _write(self.settings, iterator, task, txn_name(entry.query_id, task), entry)

    def commit(self, messages: list[TaskResult | None]) -> None:
        commit_all(self.settings.access, messages)

    def abort(self, messages: list[TaskResult | None]) -> None:
        abort_all(self.settings.access, messages)


# In tasks.


def _task() -> Any:
    context = TaskContext.get()
    assert context is not None, "Spark writes in tasks"
    return context


def _property(context: Any, name: str) -> str:
    found = context.getLocalProperty(name)
    if found is None:
        raise OptionError(
            f"Spark does not tell {name}, which exactly-once needs; set 'delivery' to at-least-once"
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
    link = link_to(settings.access)
    if transactional_id is None:
        identity = link.retry(lambda: identify(link.cluster, None, 0))
        return TaskResult(task, _ship(link, settings, identity, None, first, chunks))
    # Before it begins: that would abort what is still to be committed.
    if entry is not None and link.retry(lambda: _is_decided(link, entry)):
        return TaskResult(task, 0, entry=entry, is_decided=True)
    name = transactional_id
    txn = link.retry(lambda: begin(link.cluster, name, settings.txn_timeout_ms))
    # Only now is it certain that no earlier attempt can still change the ledger.
    if entry is not None and link.retry(lambda: _is_done(link, entry)):
        return TaskResult(task, 0, entry=entry)
    is_written = False
    try:
        rows = _ship(link, settings, txn.identity, txn, first, chunks)
        if entry is not None:
            link.retry(lambda: record_batch(link.cluster, txn, entry))
        is_written = True
    finally:
        if not is_written:
            _abort_quietly(link, txn)
    return TaskResult(task, rows, txn, entry)


async def _is_decided(link: Link, entry: CommittedBatch) -> bool:
    await ensure_ledger(link.cluster)
    return await is_decided(link.cluster, entry.query_id, entry.batch_id)


async def _is_done(link: Link, entry: CommittedBatch) -> bool:
    return await next_batch(link.cluster, entry.query_id, entry.task) > entry.batch_id


def _ship(
    link: Link,
    settings: WriteSettings,
    identity: ProducerIdentity,
    txn: OpenTransaction | None,
    first: Any,
    rest: Iterator[Any],
) -> int:
    # Only tasks write, and the process that commits need not load this.
    from penstock.spark.sink.batch_sender import Shipper
    from penstock.spark.sink.row_batches import RowBatches

    def count_partitions(topic: str) -> int:
        info = link.retry(lambda: link.cluster.topic(topic, auto_create=True))
        return len(info.partitions)

    outgoing = RowBatches(
        settings,
        identity,
        is_transactional=txn is not None,
        partition_count=count_partitions,
        now_ms=SystemClock().now_ms,
    )
    shipper = Shipper(link.cluster, txn, settings.access.retry_timeout_ms)
    rows = 0
    chunk: Any | None = first
    while chunk is not None:
        rows += chunk.num_rows
        parts = list(outgoing.parts(chunk))
        link.run(shipper.ship(parts))
        chunk = next(rest, None)
    link.run(shipper.finish())
    return rows


def _chunks(batches: Iterator[Any]) -> Iterator[Any]:
    """Spark's Arrow batches joined to a size that makes good record batches."""
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


def _abort_quietly(link: Link, txn: OpenTransaction) -> None:
    """So that readers of committed records need not wait for the transaction to time out."""
    try:
        link.run(end(link.cluster, txn, committed=False))
    except (Refused, PeerError, OSError) as error:
        _log.warning("%s was not aborted: %s", txn, error)
