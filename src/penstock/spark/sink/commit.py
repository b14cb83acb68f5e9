"""Ends the transactions of a batch, on the driver: all of them are committed, or none.

First it is noted that they are to be committed (`decisions`), then they are ended. A batch whose
note is there is finished, by whoever comes next: when its commit is repeated after a crash, and
also when Spark calls for an abort because the commit was interrupted.

A transaction that cannot be ended because it is no longer its producer's (another attempt of the
task has begun, it timed out) is done if the ledger says so. If not, the note is withdrawn and the
query fails; when the batch runs again, tasks whose line in the ledger shows it leave it out.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pyspark.sql.datasource import WriterCommitMessage

from penstock.base.errors import PeerError, Refused
from penstock.client.producer.transaction import OpenTransaction, end, is_over
from penstock.spark.connection import Link, link_to
from penstock.spark.settings import ClusterAddress
from penstock.spark.sink.commit_intent import CommitIntent, decide, read_decision, withdraw
from penstock.spark.sink.committed_batches import CommittedBatch, next_batch

T = TypeVar("T")

_log = logging.getLogger("penstock.spark")

_ENDINGS_MAX: Final = 32
"""How many transactions are ended at a time."""


@dataclass
class TaskResult(WriterCommitMessage):  # type: ignore[misc]
    """What a task did. `txn` is the transaction it left open, if it wrote in one."""

    task: int
    rows: int
    txn: OpenTransaction | None = None
    entry: CommittedBatch | None = None
    """Its line in the ledger, if it has one; also where it wrote nothing."""
    is_decided: bool = False
    """It wrote nothing, because an earlier run of the batch is to be committed."""


def commit_all(access: ClusterAddress, messages: Sequence[TaskResult | None]) -> None:
    """Commits what tasks wrote. Raises ConnectionAbortedError where the batch must run again."""
    batch = _Batch(messages)
    if batch.is_empty:
        return
    link = link_to(access)
    link.run(batch.commit(link))


def abort_all(access: ClusterAddress, messages: Sequence[TaskResult | None]) -> None:
    """Aborts what tasks wrote, unless it is decided already. What fails is only told."""
    batch = _Batch(messages)
    if batch.is_empty:
        return
    link = link_to(access)
    try:
        link.run(batch.abort(link))
    except (Refused, PeerError, OSError) as error:
        _log.warning("the batch was not ended: %s", error)


async def finish_decided(link: Link, query_id: str, batch_id: int) -> CommitIntent | None:
    """Commits the batch if that was decided before; what was decided, else None."""
    decision = await _patiently(link, lambda: read_decision(link.cluster, query_id))
    if decision is None or decision.batch_id < batch_id:
        return None
    if decision.batch_id == batch_id:
        entry = CommittedBatch(query_id, 0, batch_id)
        await _finish(link, decision.txns, entry, is_whole=decision.is_whole)
    return decision


class _Batch:
    """What the tasks of one batch say they did."""

    def __init__(self, messages: Sequence[TaskResult | None]) -> None:
        written = [message for message in messages if message is not None]
        self._fresh = {one.task: one.txn for one in written if one.txn is not None}
        self._entry = next((one.entry for one in written if one.entry is not None), None)
        self._is_decided = any(one.is_decided for one in written)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to end, and no ledger that could know better."""
        return not self._fresh and self._entry is None

    async def commit(self, link: Link) -> None:
        entry, fresh = self._entry, self._fresh
        if entry is None:
            await _finish(link, fresh, None)
            return
        if fresh and not self._is_decided:
            await _patiently(
                link, lambda: decide(link.cluster, entry.query_id, entry.batch_id, fresh)
            )
            await _finish(link, fresh, entry)
            return
        # An earlier run of the batch got as far as that, or there is nothing in it.
        decision = await finish_decided(link, entry.query_id, entry.batch_id)
        if decision is None and self._is_decided:
            raise _broken(f"batch {entry.batch_id}")
        await self._drop(link, decision)

    async def abort(self, link: Link) -> None:
        decision = None
        if self._entry is not None:
            decision = await finish_decided(link, self._entry.query_id, self._entry.batch_id)
        await self._drop(link, decision)

    async def _drop(self, link: Link, decision: CommitIntent | None) -> None:
        """Aborts what is not part of the decision."""
        kept = decision.txns.values() if decision is not None else ()
        left = [txn for txn in self._fresh.values() if txn not in kept]
        results = await _end_each(link, left, committed=False)
        for txn, error in zip(left, results, strict=True):
            if error is not None:
                _log.warning("%s was not aborted: %s", txn, error)


async def _finish(
    link: Link,
    txns: Mapping[int, OpenTransaction],
    entry: CommittedBatch | None,
    *,
    is_whole: bool = True,
) -> None:
    """Commits them all. `entry` says of which batch they are, where there is a ledger."""
    results = await _end_each(link, list(txns.values()), committed=True)
    over: dict[int, BaseException] = {}
    for task, error in zip(txns, results, strict=True):
        if error is not None and not is_over(error):
            raise error
        if error is not None:
            over[task] = error
    undone = [task for task in over if entry is None or not await _is_done(link, entry, task)]
    if is_whole and not undone:
        return
    if entry is not None:
        await _patiently(link, lambda: withdraw(link.cluster, entry.query_id, entry.batch_id))
    about = str(txns[undone[0]]) if undone else "the batch"
    raise _broken(about) from (over[undone[0]] if undone else None)


async def _is_done(link: Link, entry: CommittedBatch, task: int) -> bool:
    """Whether the ledger shows the batch. Does not wait for the attempt that took its place."""
    cluster, query_id = link.cluster, entry.query_id
    done = await _patiently(link, lambda: next_batch(cluster, query_id, task, is_stable=False))
    return done > entry.batch_id


async def _end_each(
    link: Link, txns: Sequence[OpenTransaction], *, committed: bool
) -> list[BaseException | None]:
    """Ends them, some at a time; what each failed with."""
    gate = asyncio.Semaphore(_ENDINGS_MAX)

    async def end_one(txn: OpenTransaction) -> None:
        async with gate:
            await _patiently(link, lambda: end(link.cluster, txn, committed=committed))

    return await asyncio.gather(*map(end_one, txns), return_exceptions=True)


async def _patiently(link: Link, work: Callable[[], Awaitable[T]]) -> T:
    return await link.cluster.retrying(work, timeout_ms=link.access.retry_timeout_ms)


def _broken(about: str) -> ConnectionAbortedError:
    return ConnectionAbortedError(
        f"{about} cannot be committed, another attempt of its task has taken its place or it "
        "timed out (transaction.timeout.ms); start the query again: the batch is repeated, "
        "nothing is lost or doubled"
    )
