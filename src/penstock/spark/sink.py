"""The sink `penstock`: tasks write, the driver commits.

At least once: tasks write with an idempotent producer each; a task that Spark runs again writes
again, and readers see records at once.

Exactly once: task n of query q writes in the transaction `penstock-q-n`, notes the batch in the
ledger in that same transaction, and leaves it open; the driver's `commit` ends them all. Whatever
dies, whenever it dies:

- A task that runs again begins the transaction anew, which fences the earlier attempt and aborts
  what it wrote. A zombie can write nothing that is ever seen.
- The driver dies between two commits: Spark runs the batch again. Tasks whose ledger shows the
  batch skip it; the others write again. This needs the same rows in the same task both times:
  offsets are planned so (`planning`), and a plan of the user's that is not deterministic (`rand()`,
  rows dealt out by arrival) breaks it.
- A commit that finds itself fenced (a speculative attempt began after the one that counts had
  ended) fails the query; the batch runs again after the restart and nothing is lost or doubled.

A batch write in transactions has a ledger only where `txnAppId` and `txnVersion` say which write it
is, as in `foreachBatch`; else its job id is new every time.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from penstock.base.errors import PeerError, Refused
from penstock.client.identity import Identity
from penstock.client.txn_steps import OpenTxn, begin, end, identify, is_over
from penstock.runtime.clock import SystemClock
from penstock.runtime.random import SystemRandom
from penstock.spark.link import Link, link_to
from penstock.spark.settings import WriteSettings
from penstock.spark.sink_schema import check_rows
from penstock.spark.values import OptionError

_log = logging.getLogger("penstock.spark")

_BATCH_PROPERTY = "streaming.sql.batchId"
_QUERY_PROPERTY = "sql.streaming.queryId"
_CHUNK_BYTES = 8 << 20
_ENDINGS_MAX = 32
"""How many transactions the driver ends at a time."""


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """What a task did. `txn` is the transaction it left open, if it wrote in one."""

    task: int
    rows: int
    txn: OpenTxn | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A task's line in the ledger."""

    query_id: str
    task: int
    batch_id: int


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    def __init__(self, settings: WriteSettings, schema: StructType) -> None:
        check_rows(schema, settings)
        self.settings = settings

    def write(self, iterator: Iterator[Any]) -> Written:
        context = _task()
        entry = None
        name = None
        if self.settings.is_exactly_once:
            entry = Entry(
                _property(context, _QUERY_PROPERTY),
                context.partitionId(),
                int(_property(context, _BATCH_PROPERTY)),
            )
            name = f"penstock-{entry.query_id}-{entry.task}"
        return _write(self.settings, iterator, context.partitionId(), name, entry)

    def commit(self, messages: list[Written | None], batchId: int) -> None:
        _end_all(self.settings, messages, committed=True)

    def abort(self, messages: list[Written | None], batchId: int) -> None:
        _end_all(self.settings, messages, committed=False)


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    def __init__(self, settings: WriteSettings, schema: StructType, overwrite: bool) -> None:
        check_rows(schema, settings)
        if overwrite:
            raise OptionError("a topic cannot be overwritten: write with mode 'append'")
        self.settings = settings
        self.job_id = SystemRandom().random_bytes(8).hex()

    def write(self, iterator: Iterator[Any]) -> Written:
        task = _task().partitionId()
        if not self.settings.is_exactly_once:
            return _write(self.settings, iterator, task, None, None)
        write_id = self.settings.write_id
        if write_id is None:
            return _write(self.settings, iterator, task, f"penstock-{self.job_id}-{task}", None)
        entry = Entry(write_id[0], task, write_id[1])
        return _write(self.settings, iterator, task, f"penstock-{entry.query_id}-{task}", entry)

    def commit(self, messages: list[Written | None]) -> None:
        _end_all(self.settings, messages, committed=True)

    def abort(self, messages: list[Written | None]) -> None:
        _end_all(self.settings, messages, committed=False)


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
    entry: Entry | None,
) -> Written:
    chunks = _chunks(batches)
    first = next(chunks, None)
    if first is None:
        return Written(task, 0)
    link = link_to(settings.access)
    if transactional_id is None:
        identity = link.retry(lambda: identify(link.cluster, None, 0))
        return Written(task, _ship(link, settings, identity, None, first, chunks))
    name = transactional_id
    txn = link.retry(lambda: begin(link.cluster, name, settings.txn_timeout_ms))
    # Only now is it certain that no earlier attempt can still change the ledger.
    if entry is not None and link.retry(lambda: _is_done(link, entry)):
        return Written(task, 0)
    is_written = False
    try:
        rows = _ship(link, settings, txn.identity, txn, first, chunks)
        if entry is not None:
            link.retry(lambda: _note(link, txn, entry))
        is_written = True
    finally:
        if not is_written:
            _abort_quietly(link, txn)
    return Written(task, rows, txn)


async def _is_done(link: Link, entry: Entry) -> bool:
    from penstock.spark.ledger import ensure_ledger, next_batch

    await ensure_ledger(link.cluster)
    return await next_batch(link.cluster, entry.query_id, entry.task) > entry.batch_id


async def _note(link: Link, txn: OpenTxn, entry: Entry) -> None:
    from penstock.spark.ledger import record_batch

    await record_batch(link.cluster, txn, entry.query_id, entry.task, entry.batch_id)


def _ship(
    link: Link,
    settings: WriteSettings,
    identity: Identity,
    txn: OpenTxn | None,
    first: Any,
    rest: Iterator[Any],
) -> int:
    # Only tasks write, and the process that commits need not load this.
    from penstock.spark.outgoing import Outgoing
    from penstock.spark.shipping import Shipper

    def count_partitions(topic: str) -> int:
        info = link.retry(lambda: link.cluster.topic(topic, auto_create=True))
        return len(info.partitions)

    outgoing = Outgoing(
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


def _abort_quietly(link: Link, txn: OpenTxn) -> None:
    """So that readers of committed records need not wait for the transaction to time out."""
    try:
        link.run(end(link.cluster, txn, committed=False))
    except (Refused, PeerError, OSError) as error:
        _log.warning("%s was not aborted: %s", txn, error)


# On the driver.


def _end_all(
    settings: WriteSettings, messages: Sequence[Written | None], *, committed: bool
) -> None:
    txns = [message.txn for message in messages if message is not None and message.txn is not None]
    if not txns:
        return
    link = link_to(settings.access)
    link.run(_end_some(link, txns, committed=committed))


async def _end_some(link: Link, txns: Sequence[OpenTxn], *, committed: bool) -> None:
    gate = asyncio.Semaphore(_ENDINGS_MAX)

    async def end_one(txn: OpenTxn) -> None:
        async with gate:
            await link.cluster.retrying(
                lambda: end(link.cluster, txn, committed=committed),
                timeout_ms=link.access.retry_timeout_ms,
            )

    results = await asyncio.gather(*map(end_one, txns), return_exceptions=True)
    for txn, result in zip(txns, results, strict=True):
        if not isinstance(result, BaseException):
            continue
        if not committed:
            _log.warning("%s was not aborted: %s", txn, result)
        elif is_over(result):
            raise ConnectionAbortedError(
                f"{txn} cannot be committed, another attempt of its task has taken its place or it "
                "timed out (transaction.timeout.ms); start the query again: the batch is repeated, "
                "nothing is lost or doubled"
            ) from result
        else:
            raise result
