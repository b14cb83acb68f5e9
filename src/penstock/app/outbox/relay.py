"""Outbox relay: sends an outbox's rows to the log, each exactly once, in order per key.

A relay takes free lanes (partitions of the outbox) and runs a `sender.ClaimSender` for each, which
defines the exactly-once protocol. Several relays of one outbox share its lanes; when one stops
renewing its leases, the others take over after `lease_ms`. A reader of uncommitted records may see
messages of an aborted transaction, and then again. Both copies have the same `penstock-dedup-id`,
so queues deliver one of them within their dedup window.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

from sqlalchemy import Engine, create_engine, inspect, make_url
from sqlalchemy.exc import InterfaceError, OperationalError

from penstock.app.outbox.claims import LaneLost, LaneStore
from penstock.app.outbox.enqueue import Outbox
from penstock.app.outbox.sender import (
    LEDGER,
    ClaimSender,
    OutOfStep,
    RelayConfig,
    ResumeChoice,
    in_thread,
)
from penstock.app.outbox.tables import RowState
from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Random, WallClock
from penstock.base.retry import Backoff
from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster, parse_brokers
from penstock.client.connection import ConnectionConfig
from penstock.client.errors import RETRIABLE
from penstock.runtime.clock import SystemClock
from penstock.runtime.random import SystemRandom
from penstock.runtime.workers import ThreadWorkers

__all__ = [
    "OutOfStep",
    "Relay",
    "RelayConfig",
    "ResumeChoice",
    "TableMissing",
    "open_engine",
    "relaying",
]

log = logging.getLogger("penstock.outbox")

PAUSE_S: Final = (0.2, 10.0)
_DATABASE = (OperationalError, InterfaceError)
_TRANSIENT = (Refused, OSError, *_DATABASE)

T = TypeVar("T")


class TableMissing(Exception):
    """The database has no outbox tables."""


class Relay:
    """Relay of one outbox. `run` works until cancelled, `drain` until nothing is pending."""

    def __init__(
        self,
        engine: Engine,
        cluster: Cluster,
        outbox: Outbox | None = None,
        config: RelayConfig | None = None,
        *,
        clock: WallClock | None = None,
        random: Random | None = None,
    ) -> None:
        self.config = config or RelayConfig()
        self.outbox = outbox or Outbox()
        self._engine = engine
        self._cluster = cluster
        self._lanes = LaneStore(
            engine,
            self.outbox.tables,
            clock or SystemClock(),
            random or SystemRandom(),
            self.config.lease_ms,
        )
        self._backoff = Backoff(cluster.random, *PAUSE_S)
        self._workers = ThreadWorkers(name="outbox")
        self._senders: dict[int, ClaimSender] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._sent = self._failed = 0

    @property
    def sent(self) -> int:
        """Messages that this relay has sent."""
        return self._sent + sum(sender.sent for sender in self._senders.values())

    @property
    def failed(self) -> int:
        """Messages that brokers have refused."""
        return self._failed + sum(sender.failed for sender in self._senders.values())

    def wake(self) -> None:
        """Polls the outbox now: the application has committed rows."""
        for sender in self._senders.values():
            sender.wake.set()

    async def run(self) -> None:
        """Relays until cancelled; several relays share the lanes, and take over from each other."""
        await self._retrying(self._require_tables)
        await self._retrying(self._make_ledger)
        try:
            while True:
                await self._retrying(self._take_lanes)
                pause_s = self.config.lease_ms / 3000
                if not self._tasks:
                    await asyncio.sleep(min(pause_s, self.config.poll_ms / 1000))
                    continue
                await asyncio.wait(
                    self._tasks.values(), timeout=pause_s, return_when=asyncio.FIRST_COMPLETED
                )
                self._remove_ended()
        finally:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for lane in list(self._tasks):
                self._remove(lane)

    async def drain(self) -> None:
        """Relays until nothing is pending."""
        await self._retrying(self._require_tables)
        running = asyncio.get_running_loop().create_task(self.run())
        try:
            while not running.done() and await self._retrying(self._count_open) > 0:
                await asyncio.wait((running,), timeout=self.config.poll_ms / 1000)
        finally:
            if not running.done():
                running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    def close(self) -> None:
        """Ends the threads; call it after `run` and `drain` have ended."""
        self._workers.close()

    # -- lanes ------------------------------------------------------------------------------

    async def _require_tables(self) -> None:
        """Raises TableMissing. SQLite uses one error for a missing table and a busy database."""
        tables = self.outbox.tables

        def missing() -> list[str]:
            known = inspect(self._engine)
            names = (tables.messages.name, tables.lanes.name)
            return [name for name in names if not known.has_table(name)]

        if names := await in_thread(self._workers, missing):
            raise TableMissing(
                f"database has no table {' and no '.join(names)}; create it with "
                "`penstock outbox init`, or with your own migrations"
            )

    async def _make_ledger(self) -> None:
        try:
            await Admin(self._cluster).create_topic(LEDGER.topic, 1)
        except Refused as refused:
            if refused.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    async def _take_lanes(self) -> None:
        await in_thread(self._workers, self._lanes.create_missing)
        while True:
            lease = await in_thread(self._workers, self._lanes.take, list(self._tasks))
            if lease is None:
                return
            sender = ClaimSender(lease, self._lanes, self._cluster, self._workers, self.config)
            self._senders[lease.lane] = sender
            task = asyncio.get_running_loop().create_task(self._send(sender))
            self._tasks[lease.lane] = task

    async def _send(self, sender: ClaimSender) -> None:
        """Sends one lane until another relay takes it; retries transient failures."""
        failures = sent = 0
        try:
            while True:
                try:
                    await sender.run()
                except _TRANSIENT as error:
                    failures = failures + 1 if sender.sent == sent else 0
                    sent = sender.sent
                    log.warning("outbox lane %d: retrying after: %s", sender.lease.lane, error)
                    await self._backoff.wait(failures)
        except LaneLost as lost:
            log.info("%s", lost)
        except asyncio.CancelledError:
            with suppress(LaneLost, *_DATABASE):
                await sender.release()
            raise

    def _remove_ended(self) -> None:
        """Removes ended senders; raises the error of one that failed permanently."""
        for lane in [lane for lane, task in self._tasks.items() if task.done()]:
            task = self._tasks[lane]
            self._remove(lane)
            task.result()

    def _remove(self, lane: int) -> None:
        sender = self._senders.pop(lane)
        self._sent += sender.sent
        self._failed += sender.failed
        del self._tasks[lane]

    # -- retrying --------------------------------------------------------------------------

    async def _count_open(self) -> int:
        def count() -> int:
            with self._engine.connect() as connection:
                counts = self.outbox.counts(connection)
            return counts[RowState.PENDING] + counts[RowState.CLAIMED]

        return await in_thread(self._workers, count)

    async def _retrying(self, work: Callable[[], Awaitable[T]]) -> T:
        """Calls `work` until cluster and database answer."""
        failures = 0
        while True:
            try:
                return await work()
            except _TRANSIENT as error:
                if isinstance(error, Refused) and error.code not in RETRIABLE:
                    raise
                log.warning("outbox: retrying after: %s", error)
                await self._backoff.wait(failures)
                failures += 1


def open_engine(database: str) -> Engine:
    """Creates an engine for a database URL, with the driver of the extra `postgres`."""
    url = make_url(database)
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    return create_engine(url, pool_pre_ping=True)


@asynccontextmanager
async def relaying(
    brokers: str,
    database: str,
    *,
    outbox: Outbox | None = None,
    config: RelayConfig | None = None,
) -> AsyncIterator[Relay]:
    """Context manager: a relay from a database URL to brokers (`host:port,...`)."""
    engine = open_engine(database)
    connection = ConnectionConfig(client_id="penstock-outbox")
    try:
        async with Cluster(SystemRandom(), parse_brokers(brokers), connection) as cluster:
            relay = Relay(engine, cluster, outbox, config)
            try:
                yield relay
            finally:
                relay.close()
    finally:
        engine.dispose()
