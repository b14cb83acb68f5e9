"""Commit of a batch on the driver: commits all of its transactions, or none.

The driver stores the commit intent (`commit_intent`) before it ends the transactions. A batch with
a stored intent is always committed: when Spark repeats the commit after a crash, and also when
Spark aborts the batch because the commit was interrupted.

A transaction may be lost to its producer because another attempt of the task has begun or because
it timed out. It counts as committed if the ledger shows the batch for its task. Otherwise the
driver withdraws the intent and the query fails; when the batch runs again, tasks whose entry in the
ledger shows it write nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pyspark.sql.datasource import WriterCommitMessage

from penstock.base.errors import PeerError, Refused
from penstock.client.producer.transaction import OpenTransaction, end, is_lost
from penstock.spark.connection import BlockingClient, blocking_client
from penstock.spark.settings import ClusterAddress
from penstock.spark.sink import fault_points
from penstock.spark.sink.commit_intent import (
    CommitIntent,
    read_commit_intent,
    store_commit_intent,
    withdraw_commit_intent,
)
from penstock.spark.sink.committed_batches import CommittedBatch, next_uncommitted_batch

T = TypeVar("T")

_log = logging.getLogger("penstock.spark")

_CONCURRENT_ENDS_MAX: Final = 32
"""Maximum number of transactions that are ended concurrently."""


@dataclass
class TaskResult(WriterCommitMessage):  # type: ignore[misc]
    """Result of a task. `txn` is the transaction that it left open, if it wrote in one."""

    task: int
    rows: int
    txn: OpenTransaction | None = None
    entry: CommittedBatch | None = None
    """Entry of the task in the ledger, if it has one; also set if it wrote nothing."""
    has_commit_intent: bool = False
    """True if the task wrote nothing because an earlier run of the batch will be committed."""


def commit_all(access: ClusterAddress, messages: Sequence[TaskResult | None]) -> None:
    """Commits the tasks' transactions; raises ConnectionAbortedError if the batch must rerun."""
    batch = _TaskResults(messages)
    if batch.is_empty:
        return
    client = blocking_client(access)
    client.run(batch.commit(client))


def abort_all(access: ClusterAddress, messages: Sequence[TaskResult | None]) -> None:
    """Aborts the tasks' transactions unless a commit intent exists. Only logs failures."""
    batch = _TaskResults(messages)
    if batch.is_empty:
        return
    client = blocking_client(access)
    try:
        client.run(batch.abort(client))
    except (Refused, PeerError, OSError) as error:
        _log.warning("abort of the batch failed: %s", error)


async def finish_intended_commit(
    client: BlockingClient, query_id: str, batch_id: int
) -> CommitIntent | None:
    """Commits the batch if its commit intent is stored.

    Returns the stored intent of this or a later batch, else None.
    """
    intent = await _with_retries(client, lambda: read_commit_intent(client.cluster, query_id))
    if intent is None or intent.batch_id < batch_id:
        return None
    if intent.batch_id == batch_id:
        entry = CommittedBatch(query_id, 0, batch_id)
        await _commit_all(client, intent.txns, entry, is_whole=intent.is_whole)
    return intent


class _TaskResults:
    """Results of the tasks of one batch."""

    def __init__(self, messages: Sequence[TaskResult | None]) -> None:
        written = [message for message in messages if message is not None]
        self._open_txns = {one.task: one.txn for one in written if one.txn is not None}
        self._entry = next((one.entry for one in written if one.entry is not None), None)
        self._has_commit_intent = any(one.has_commit_intent for one in written)

    @property
    def is_empty(self) -> bool:
        """True if no transaction is open and no ledger can hold a commit intent."""
        return not self._open_txns and self._entry is None

    async def commit(self, client: BlockingClient) -> None:
        entry, fresh = self._entry, self._open_txns
        if entry is None:
            await _commit_all(client, fresh, None)
            return
        if fresh and not self._has_commit_intent:
            fault_points.reach(fault_points.BEFORE_INTENT)
            await _with_retries(
                client,
                lambda: store_commit_intent(client.cluster, entry.query_id, entry.batch_id, fresh),
            )
            fault_points.reach(fault_points.INTENT_STORED)
            await _commit_all(client, fresh, entry)
            fault_points.reach(fault_points.ALL_COMMITTED)
            return
        # An earlier run of the batch stored the intent, or the batch is empty.
        intent = await finish_intended_commit(client, entry.query_id, entry.batch_id)
        if intent is None and self._has_commit_intent:
            raise _not_committable(f"batch {entry.batch_id}")
        await self._abort_rest(client, intent)

    async def abort(self, client: BlockingClient) -> None:
        intent = None
        if self._entry is not None:
            intent = await finish_intended_commit(
                client, self._entry.query_id, self._entry.batch_id
            )
        await self._abort_rest(client, intent)

    async def _abort_rest(self, client: BlockingClient, intent: CommitIntent | None) -> None:
        """Aborts open transactions that are not part of the intent."""
        kept = intent.txns.values() if intent is not None else ()
        left = [txn for txn in self._open_txns.values() if txn not in kept]
        results = await _end_all(client, left, committed=False)
        for txn, error in zip(left, results, strict=True):
            if error is not None:
                _log.warning("%s was not aborted: %s", txn, error)


async def _commit_all(
    client: BlockingClient,
    txns: Mapping[int, OpenTransaction],
    entry: CommittedBatch | None,
    *,
    is_whole: bool = True,
) -> None:
    """Commits all transactions. `entry` names their batch if it has a ledger."""
    results = await _end_all(client, list(txns.values()), committed=True)
    over: dict[int, BaseException] = {}
    for task, error in zip(txns, results, strict=True):
        if error is not None and not is_lost(error):
            raise error
        if error is not None:
            over[task] = error
    undone = [
        task for task in over if entry is None or not await _is_committed(client, entry, task)
    ]
    if is_whole and not undone:
        return
    if entry is not None:
        await _with_retries(
            client, lambda: withdraw_commit_intent(client.cluster, entry.query_id, entry.batch_id)
        )
    about = str(txns[undone[0]]) if undone else "the batch"
    raise _not_committable(about) from (over[undone[0]] if undone else None)


async def _is_committed(client: BlockingClient, entry: CommittedBatch, task: int) -> bool:
    """True if the ledger shows the batch. Does not wait for the attempt that replaced this one."""
    cluster, query_id = client.cluster, entry.query_id
    done = await _with_retries(
        client, lambda: next_uncommitted_batch(cluster, query_id, task, is_stable=False)
    )
    return done > entry.batch_id


async def _end_all(
    client: BlockingClient, txns: Sequence[OpenTransaction], *, committed: bool
) -> list[BaseException | None]:
    """Ends transactions with bounded concurrency; returns the error of each, or None."""
    gate = asyncio.Semaphore(_CONCURRENT_ENDS_MAX)

    async def end_one(txn: OpenTransaction) -> None:
        async with gate:
            await _with_retries(client, lambda: end(client.cluster, txn, committed=committed))
            if committed:
                fault_points.reach(fault_points.FIRST_COMMITTED)

    return await asyncio.gather(*map(end_one, txns), return_exceptions=True)


async def _with_retries(client: BlockingClient, work: Callable[[], Awaitable[T]]) -> T:
    return await client.cluster.retrying(work, timeout_ms=client.access.retry_timeout_ms)


def _not_committable(about: str) -> ConnectionAbortedError:
    return ConnectionAbortedError(
        f"{about} cannot be committed: another attempt of its task replaced it, or it timed out "
        "(transaction.timeout.ms); restart the query: the batch is repeated, without loss or "
        "duplicates"
    )
