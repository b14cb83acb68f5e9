"""Sends one lane of an outbox: claim, write, mark, and what a relay that died left behind.

One batch after the other:

1. claim: a number and the next messages, one transaction of the database;
2. write: the messages and that number, one transaction of the cluster. The number is kept as the
   lane's position in the ledger, a group named like the lane that nobody is a member of;
3. mark: the messages are sent, one transaction of the database.

Wherever that is cut short, whoever holds the lane next first begins under the lane's transactional
id, which ends the transaction that was open and keeps the dead one from ever ending it, and then
compares: the ledger says the number that is claimed, so the batch is in the log; or it says the
one before, so it is not, and is sent again. Anything else means that the ledger or the database is
not the one that belongs to the other, and nothing is sent until somebody says what to do
(`OutOfStep`). So readers of committed records see every message exactly once.

A message that the broker refuses for what it is (too large, no such topic) fails alone: it is
marked, those after it go on.
"""

import asyncio
import enum
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, ParamSpec, TypeVar

from sqlalchemy import RowMapping

from penstock.app.outbox.claims import PURGED_MAX, Claimed, Hold, InDoubt, Lanes
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
"""Where the ledger's positions are. Nothing is ever written there."""
MESSAGE_ID: Final = "message_id"
KEYLESS_RUN: Final = 64
"""So many messages without a key in a row go to one partition, the same whenever they are sent."""
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
"""The message's own fault, as far as one can tell."""

P = ParamSpec("P")
T = TypeVar("T")


class ResumeChoice(enum.Enum):
    """How to go on without a ledger that tells."""

    STOP = "stop"
    RESEND = "resend"
    """Nothing is lost, something may be there twice."""
    SKIP = "skip"
    """Nothing is there twice, something may be lost."""


@dataclass(frozen=True, slots=True)
class RelayConfig:
    rows_max: int = 500
    """Messages in one batch."""
    bytes_max: int = 800_000
    """Beyond this a batch takes no further message: together they must fit into one record batch
    of a partition."""
    poll_ms: int = 100
    """How often an outbox with nothing to send is looked at."""
    lease_ms: int = 10_000
    """After such a silence of a relay another one takes its lanes."""
    keep_ms: int = 3_600_000
    """Sent messages stay in the table for so long."""
    transaction_timeout_ms: int = 60_000
    in_doubt: ResumeChoice = ResumeChoice.STOP
    """What to do where the ledger cannot tell whether a batch was sent."""


class OutOfStep(Exception):
    """Ledger and database do not belong together: it cannot be told what was sent.

    After a look at the topics somebody decides: `RelayConfig.in_doubt`.
    """


class ClaimSender:
    """Sends what is in the lane that was taken, for as long as it is held."""

    def __init__(
        self, hold: Hold, lanes: Lanes, cluster: Cluster, workers: Workers, config: RelayConfig
    ) -> None:
        self.hold = hold
        self.sent = 0
        self.failed = 0
        self.news = asyncio.Event()
        self._lanes = lanes
        self._cluster = cluster
        self._workers = workers
        self._config = config
        self._careful = 0
        """So many messages are sent one by one, because one of them was refused."""
        self._refused: str | None = None
        """Why the message that is claimed, alone in its batch, was refused."""
        self._renew_s = self._purge_s = 0.0

    async def run(self) -> None:
        """Finds out what became of the last batch, then sends one after the other.

        Raises LaneLost when the lane is another's. Whatever else it raises: run it again.
        """
        while True:
            await self._work(self._lanes.renew, self.hold)
            timeout_ms = self._config.transaction_timeout_ms
            writer = TransactionalWriter(self._cluster, self.hold.identity, timeout_ms)
            await writer.begin()
            await self._resolve()
            await self._send_all(writer)

    async def release(self) -> None:
        """Others need not wait for the lease to run out."""
        await self._work(self._lanes.release, self.hold)

    async def _send_all(self, writer: TransactionalWriter) -> None:
        """Returns when a message was refused; its transaction is then open."""
        config = self._config
        while True:
            rows_max = 1 if self._careful else config.rows_max
            claimed = await self._work(self._lanes.claim, self.hold, rows_max, config.bytes_max)
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
                self._careful = max(self._careful, len(claimed.rows))
                return
            await self._work(self._lanes.mark_sent, self.hold, claimed.number)
            self.sent += len(claimed.rows)
            self._careful = max(0, self._careful - len(claimed.rows))
            await self._purge()

    async def _resolve(self) -> None:
        """The last batch is in the log or is not; nothing is open that could change that."""
        hold = self.hold
        doubt = await self._work(self._lanes.in_doubt, hold)
        ledger = await committed_offsets(self._cluster, hold.identity, is_stable=True)
        kept = ledger[LEDGER].offset if LEDGER in ledger else 0
        is_known = kept in (doubt.number, doubt.done) or doubt.number is None
        if kept > doubt.last or not is_known:
            # Another relay that has taken the lane meanwhile may have moved the ledger on.
            await self._work(self._lanes.renew, hold)
            if self._config.in_doubt is ResumeChoice.STOP:
                raise OutOfStep(_explain(hold, doubt, kept))
            if kept > doubt.last:
                await self._work(self._lanes.adopt, hold, kept)
            is_sent = self._config.in_doubt is ResumeChoice.SKIP
        else:
            is_sent = kept == doubt.number
        if doubt.number is None:
            return
        if is_sent:
            await self._work(self._lanes.mark_sent, hold, doubt.number)
        elif self._refused is not None:
            log.error("a message of lane %d cannot be sent: %s", hold.lane, self._refused)
            await self._work(self._lanes.mark_failed, hold, self._refused)
            self.failed += 1
            self._careful -= 1
        else:
            await self._work(self._lanes.give_back, hold)
        self._refused = None

    async def _write(self, writer: TransactionalWriter, claimed: Claimed) -> None:
        batches: dict[TopicPartition, list[Record]] = {}
        for row in claimed.rows:
            info = await self._cluster.topic(row["topic"], auto_create=True)
            where = TopicPartition(row["topic"], _partition(row, len(info.partitions)))
            batches.setdefault(where, []).append(_record(row))
        await writer.write(batches, self.hold.identity, {LEDGER: Committed(claimed.number)})

    async def _idle(self) -> None:
        """Nothing to send: waits for news, renews the lease, cleans."""
        loop = asyncio.get_running_loop()
        self.news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.poll_ms / 1000):
                await self.news.wait()
        if loop.time() >= self._renew_s:
            self._renew_s = loop.time() + self._config.lease_ms / 3000
            await self._work(self._lanes.renew, self.hold)
        await self._purge()

    async def _purge(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() >= self._purge_s:
            gone = await self._work(self._lanes.purge, self.hold, self._config.keep_ms)
            self._purge_s = loop.time() + (0 if gone == PURGED_MAX else PURGE_S)

    async def _work(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await in_thread(self._workers, work, *args, **kwargs)


async def in_thread(workers: Workers, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs it in a thread, and has it end before a cancelled caller goes on."""
    running = asyncio.ensure_future(workers.run(work, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if not running.done():
            await asyncio.wait((running,))
        raise


def _explain(hold: Hold, doubt: InDoubt, kept: int) -> str:
    if kept > doubt.last:
        return (
            f"lane {hold.lane} of the outbox has claimed {doubt.last} batches, but {kept} are in "
            "the log: the database is older than the log (a restored backup?)"
        )
    return (
        f"batch {doubt.number} of lane {hold.lane} may be in the log or not: the ledger (group "
        f"{hold.identity}) says {kept}, and should say {doubt.done} or {doubt.number}. It was "
        "lost, or this is another cluster"
    )


def _partition(row: RowMapping, count: int) -> int:
    """The same whenever the message is sent."""
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
