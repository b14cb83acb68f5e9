"""Sender of one outbox lane: claims, writes and marks batches; resolves a dead relay's batch.

One batch after the other:

1. claim: a batch number and the next messages, one database transaction;
2. write: the messages and the number, one transaction of the cluster. The number is committed as
   the lane's offset in the ledger, a consumer group without members, named by the lane's identity;
3. mark: the messages are sent, one database transaction.

If a relay stops between these steps, the next holder of the lane first initializes the lane's
transactional id. That aborts the open transaction and fences the dead relay. Then it compares: if
the ledger has the claimed number, the batch is in the log. If it has the number before, the batch
is not, and is sent again. Any other number means that ledger and database do not match: nothing is
sent until an operator decides (`OutOfStep`). So readers of committed records see every message
exactly once.

A message that the broker refuses for itself (too large, no such topic) fails alone: it is marked
as failed, and later messages are still sent.
"""

import asyncio
import enum
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, ParamSpec, TypeVar

from sqlalchemy import RowMapping

from penstock.app.outbox.claims import PURGED_MAX, Claimed, InDoubt, LaneLease, LaneStore
from penstock.app.outbox.enqueue import unpack_headers
from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Workers
from penstock.client.cluster import Cluster
from penstock.client.committed_offsets import Committed, committed_offsets
from penstock.client.metadata import TopicPartition
from penstock.client.producer.partitioner import partition_for_key
from penstock.client.producer.transactional import TransactionalWriter
from penstock.state.queues.delivery_headers import DEDUP_ID
from penstock.wire.records import Record

log = logging.getLogger("penstock.outbox")

LEDGER: Final = TopicPartition("penstock-outbox-ledger", 0)
"""Partition whose committed offsets are the ledger. No record is ever written to it."""
MESSAGE_ID: Final = "message_id"
KEYLESS_RUN: Final = 64
"""Consecutive keyless messages per partition; chosen by row id, so a resend uses the same one."""
PURGE_S: Final = 10.0

UNSENDABLE: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.POLICY_VIOLATION,
    }
)
"""Error codes that the message itself caused, as far as the sender can tell."""

P = ParamSpec("P")
T = TypeVar("T")


class ResumeChoice(enum.Enum):
    """Choice for a batch of which the ledger cannot tell if it was sent."""

    STOP = "stop"
    RESEND = "resend"
    """Send again: nothing is lost, messages may be duplicated."""
    SKIP = "skip"
    """Count it as sent: nothing is duplicated, messages may be lost."""


@dataclass(frozen=True, slots=True)
class RelayConfig:
    rows_max: int = 500
    """Maximum messages in one batch."""
    bytes_max: int = 800_000
    """Maximum bytes of a batch: its messages must fit into one record batch of a partition."""
    poll_ms: int = 100
    """Poll interval of an outbox without pending messages."""
    lease_ms: int = 10_000
    """Lease of a lane: another relay takes it this long after the last renewal."""
    keep_ms: int = 3_600_000
    """Retention of sent rows in the table."""
    transaction_timeout_ms: int = 60_000
    in_doubt: ResumeChoice = ResumeChoice.STOP
    """Action when the ledger cannot tell if a batch was sent."""


class OutOfStep(Exception):
    """Ledger and database contradict each other: it is unknown which batches were sent.

    An operator inspects the topics and then decides with `RelayConfig.in_doubt`.
    """


class ClaimSender:
    """Sends the messages of one lane for as long as it holds the lane's lease."""

    def __init__(
        self,
        lease: LaneLease,
        lanes: LaneStore,
        cluster: Cluster,
        workers: Workers,
        config: RelayConfig,
    ) -> None:
        self.lease = lease
        self.sent = 0
        self.failed = 0
        self.wake = asyncio.Event()
        self._lanes = lanes
        self._cluster = cluster
        self._workers = workers
        self._config = config
        self._one_by_one = 0
        """Messages left to send one by one, because one of them was refused."""
        self._refused: str | None = None
        """Reason for which the claimed message, alone in its batch, was refused."""
        self._renew_s = self._purge_s = 0.0

    async def run(self) -> None:
        """Resolves the last batch, then sends batch after batch.

        Raises LaneLost when another relay took the lane. After any other error, run it again.
        """
        while True:
            await self._work(self._lanes.renew, self.lease)
            timeout_ms = self._config.transaction_timeout_ms
            writer = TransactionalWriter(self._cluster, self.lease.identity, timeout_ms)
            await writer.begin()
            await self._resolve()
            await self._send_all(writer)

    async def release(self) -> None:
        """Releases the lease, so that other relays need not wait for its expiry."""
        await self._work(self._lanes.release, self.lease)

    async def _send_all(self, writer: TransactionalWriter) -> None:
        """Sends until a message is refused; its transaction is then still open."""
        config = self._config
        while True:
            rows_max = 1 if self._one_by_one else config.rows_max
            claimed = await self._work(self._lanes.claim, self.lease, rows_max, config.bytes_max)
            if claimed is None:
                await self._idle()
                continue
            try:
                await self._write(writer, claimed)
            except Refused as refused:
                if refused.code not in UNSENDABLE:
                    raise
                if len(claimed.rows) == 1:
                    self._refused = refused.message
                self._one_by_one = max(self._one_by_one, len(claimed.rows))
                return
            await self._work(self._lanes.mark_sent, self.lease, claimed.number)
            self.sent += len(claimed.rows)
            self._one_by_one = max(0, self._one_by_one - len(claimed.rows))
            await self._purge()

    async def _resolve(self) -> None:
        """Settles the last batch. No transaction is open that could still change the log."""
        lease = self.lease
        doubt = await self._work(self._lanes.in_doubt, lease)
        ledger = await committed_offsets(self._cluster, lease.identity, is_stable=True)
        kept = ledger[LEDGER].offset if LEDGER in ledger else 0
        is_known = kept in (doubt.number, doubt.done) or doubt.number is None
        if kept > doubt.last or not is_known:
            # Another relay may have taken the lane meanwhile and advanced the ledger.
            await self._work(self._lanes.renew, lease)
            if self._config.in_doubt is ResumeChoice.STOP:
                raise OutOfStep(_explain_conflict(lease, doubt, kept))
            if kept > doubt.last:
                await self._work(self._lanes.adopt, lease, kept)
            is_sent = self._config.in_doubt is ResumeChoice.SKIP
        else:
            is_sent = kept == doubt.number
        if doubt.number is None:
            return
        if is_sent:
            await self._work(self._lanes.mark_sent, lease, doubt.number)
        elif self._refused is not None:
            log.error("outbox lane %d: message refused: %s", lease.lane, self._refused)
            await self._work(self._lanes.mark_failed, lease, self._refused)
            self.failed += 1
            self._one_by_one -= 1
        else:
            await self._work(self._lanes.give_back, lease)
        self._refused = None

    async def _write(self, writer: TransactionalWriter, claimed: Claimed) -> None:
        batches: dict[TopicPartition, list[Record]] = {}
        for row in claimed.rows:
            info = await self._cluster.topic(row["topic"], auto_create=True)
            where = TopicPartition(row["topic"], _partition(row, len(info.partitions)))
            batches.setdefault(where, []).append(_record(row))
        await writer.write(batches, self.lease.identity, {LEDGER: Committed(claimed.number)})

    async def _idle(self) -> None:
        """Waits for new messages or the poll interval, renews the lease, purges."""
        loop = asyncio.get_running_loop()
        self.wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.poll_ms / 1000):
                await self.wake.wait()
        if loop.time() >= self._renew_s:
            self._renew_s = loop.time() + self._config.lease_ms / 3000
            await self._work(self._lanes.renew, self.lease)
        await self._purge()

    async def _purge(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() >= self._purge_s:
            gone = await self._work(self._lanes.purge, self.lease, self._config.keep_ms)
            self._purge_s = loop.time() + (0 if gone == PURGED_MAX else PURGE_S)

    async def _work(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await in_thread(self._workers, work, *args, **kwargs)


async def in_thread(workers: Workers, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs `work` in a thread; a cancelled caller still waits until it has ended."""
    running = asyncio.ensure_future(workers.run(work, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if not running.done():
            await asyncio.wait((running,))
        raise


def _explain_conflict(lease: LaneLease, doubt: InDoubt, kept: int) -> str:
    if kept > doubt.last:
        return (
            f"outbox lane {lease.lane} has claimed {doubt.last} batches, but the log has {kept}: "
            "the database is older than the log (a restored backup?). Inspect the topics, then "
            "set RelayConfig.in_doubt"
        )
    return (
        f"outbox lane {lease.lane}: batch {doubt.number} may or may not be in the log. The "
        f"ledger (group {lease.identity}) says {kept}; expected {doubt.done} or {doubt.number}. It "
        "was lost, or this is another cluster. Inspect the topics, then set RelayConfig.in_doubt"
    )


def _partition(row: RowMapping, count: int) -> int:
    """Partition of a row; the same on every attempt."""
    key = row["key"]
    if key is None:
        return int(row["id"]) // KEYLESS_RUN % count
    return partition_for_key(bytes(key), count)


def _record(row: RowMapping) -> Record:
    headers = unpack_headers(row["headers"])
    names = {name for name, _ in headers}
    message_id = str(row["message_id"]).encode()
    headers += [(name, message_id) for name in (MESSAGE_ID, DEDUP_ID) if name not in names]
    key, payload = (None if row[name] is None else bytes(row[name]) for name in ("key", "payload"))
    return Record(0, int(row["created_ms"]), key, payload, tuple(headers))
