"""Broker for one test: the real node on a loop in a thread, with a clock that the test advances.

    with Broker() as broker:
        broker.publish("jobs", b"later", delay="15m")
        broker.clock.advance("15m")

Everything is real but the clock: files in a temporary directory, sockets on loopback, ports chosen
by the system, the same code as `penstock up`. Any client may connect to `bootstrap` and `http`.
`DEFAULTS` differ from a broker's defaults, for speed, and because clients stamp their records by a
clock that the test does not advance; `configs` overrides them.

The broker runs in its own thread, and every call waits for its answer, so all calls work in plain
and in asyncio tests alike. `run` runs a coroutine on the broker's own loop, where sleeps and
timeouts are virtual, too.
"""

import asyncio
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar

from penstock.app.durations import Duration, Moment
from penstock.app.outgoing import Headers, Key, Outgoing, Payload
from penstock.app.worker import Worker
from penstock.base.ports import Store
from penstock.client.cluster import Cluster, parse_brokers
from penstock.client.connection import ConnectionConfig
from penstock.client.consumer.fetched import FetchedRecord
from penstock.client.producer.producer import Sent
from penstock.cluster.storage.compaction_schedule import COMPACTIONS_MAX
from penstock.coordinator.queues.policy import DEAD_LETTER_SUFFIX
from penstock.coordinator.runtime.steady_clock import SteadyTime
from penstock.log.flusher import SYNC_JOBS
from penstock.node.config import NodeConfig, load
from penstock.node.node import Node
from penstock.node.ports import Ports, real_ports
from penstock.runtime.loop_thread import LoopThread
from penstock.runtime.workers import ThreadWorkers
from penstock.testing.clock import CountedStore, CountedWorkers, SkewedLoop, VirtualClock
from penstock.testing.fixture_api import Hand

DEFAULTS = {
    # A delay counts from a record's timestamp, which must be of the clock that is advanced.
    "log.message.timestamp.type": "LogAppendTime",
    # A temporary directory need not survive a power failure.
    "flush.policy": "page-cache",
    # A jump of the clock by an hour would take 120 samples.
    "console.history.enable": "false",
    # A jump of the clock must not close idle connections.
    "connections.max.idle.ms": "-1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
PATIENCE_S = 30.0
"""Real seconds that one call may take."""

POLL_S = 0.01

T = TypeVar("T")


class Broker:
    """Started by `start` or `with`; stopped, and its files removed, by `stop`."""

    clock: VirtualClock
    bootstrap: str
    """HOST:PORT for Kafka clients."""
    http: str
    """The address of the HTTP API, beginning with http://."""

    def __init__(
        self, configs: Mapping[str, object] | None = None, *, data_dir: str | None = None
    ) -> None:
        """`configs` are Kafka's broker configs by name. A `data_dir` is kept, not removed."""
        self._configs = {name: str(value) for name, value in (configs or {}).items()}
        self._is_kept = data_dir is not None
        self.data_dir = data_dir or ""
        """Directory of the broker's files while it runs."""
        self._loop: SkewedLoop | None = None
        self._thread: threading.Thread | None = None
        self._threads: list[ThreadWorkers] = []
        self._node: Node | None = None
        self._hand: Hand | None = None

    def __enter__(self) -> "Broker":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # -- starting and stopping --------------------------------------------------------------

    def start(self) -> None:
        """Returns when the broker serves."""
        assert self._loop is None, "the broker is running"
        config = self._config()
        loop = self._loop = SkewedLoop()
        ports = self._ports(loop)
        self._thread = threading.Thread(target=_drive, args=(loop,), name="penstock-broker")
        self._thread.daemon = True
        self._thread.start()
        try:
            self.run(self._start(config, ports))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stops the broker; raises what made it fail, if something did."""
        loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(self._stop(), loop).result(PATIENCE_S)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join(PATIENCE_S)
            for threads in self._threads:
                threads.close()
            self._threads.clear()
            if not self._is_kept:
                shutil.rmtree(self.data_dir, ignore_errors=True)

    def _config(self) -> NodeConfig:
        if not self._is_kept:
            self.data_dir = tempfile.mkdtemp(prefix="penstock-test-")
        flags = {"data_dir": self.data_dir, "kafka_port": 0, "http_port": 0}
        return load(None, flags, DEFAULTS | self._configs)

    def _ports(self, loop: SkewedLoop) -> Ports:
        self._threads = [
            ThreadWorkers(),
            ThreadWorkers(SYNC_JOBS, name="sync"),
            ThreadWorkers(COMPACTIONS_MAX, name="cleaner"),
        ]
        counted = [CountedWorkers(threads) for threads in self._threads]
        workers, sync_workers, cleaner_workers = counted
        clock = self.clock = VirtualClock(loop)
        clock.busy += counted

        async def open_store(path: str) -> Store:
            store = await CountedStore.open(path)
            clock.busy.append(store)
            return store

        return replace(
            real_ports(),
            clock=clock,
            workers=workers,
            sync_workers=sync_workers,
            cleaner_workers=cleaner_workers,
            open_store=open_store,
            member_time=lambda: SteadyTime(clock.sessions, clock.sessions.now_s),
        )

    async def _start(self, config: NodeConfig, ports: Ports) -> None:
        node = self._node = Node(config, ports)
        self.bootstrap, self.http = await node.start()
        cluster = Cluster(
            ports.random, parse_brokers(self.bootstrap), ConnectionConfig(client_id="test")
        )
        self._hand = Hand(cluster, ports.clock, ports.random)

    async def _stop(self) -> None:
        if self._hand is not None:
            await self._hand.close()
        node, self._node, self._hand = self._node, None, None
        if node is not None:
            await node.stop()
            if node.failed.done():
                await node.failed

    # -- using it ---------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float = PATIENCE_S) -> T:
        """Runs a coroutine on the broker's loop, in virtual time; waits `timeout_s` real seconds
        for its result."""
        loop = self._loop
        if loop is None:
            work.close()
            raise RuntimeError("the broker is not running")
        running = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return running.result(timeout_s)
        except BaseException:
            running.cancel()
            raise

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> None:
        self.run(self._hands().create_topic(name, partitions, _texts(configs)))

    def configure_topic(self, topic: str, configs: Mapping[str, object]) -> None:
        self.run(self._hands().configure(topic, None, _texts(configs)))

    def configure_group(self, group: str, configs: Mapping[str, object]) -> None:
        """Sets configs of a group, such as `share.record.lock.duration.ms` or
        `share.auto.offset.reset`."""
        self.run(self._hands().configure(None, group, _texts(configs)))

    def publish(
        self,
        topic: str,
        payload: Payload = None,
        key: Key = None,
        headers: Headers = None,
        *,
        delay: Duration | None = None,
        deliver_at: Moment | None = None,
        priority: int | None = None,
        dedup_id: str | None = None,
        expires_in: Duration | None = None,
        partition: int | None = None,
    ) -> Sent:
        """Writes one message and returns its place; creates a missing topic."""
        message = Outgoing(
            payload=payload,
            key=key,
            headers=headers,
            delay=delay,
            deliver_at=deliver_at,
            priority=priority,
            dedup_id=dedup_id,
            expires_in=expires_in,
            partition=partition,
        )
        return self.run(self._hands().publish(topic, message))

    @contextmanager
    def run_worker(self, worker: Worker, timeout_s: float = PATIENCE_S) -> Iterator[Worker]:
        """Runs a worker against this broker, on a thread of its own, for the length of the block.

        Begins when the worker receives messages. At the end of the block the worker stops as on
        SIGTERM; an error that ended it before is raised there.
        """
        named, worker.brokers = worker.brokers, self.bootstrap
        started: Future[None] = Future()
        thread = LoopThread("penstock-worker")

        async def serve() -> None:
            try:
                await worker.serve(started=lambda: started.set_result(None))
            except BaseException as error:
                if started.done():
                    raise
                started.set_exception(error)

        async def stop() -> None:
            worker.stop()
            await serving

        try:
            serving = thread.run(_begun(serve()))
            started.result(timeout_s)
            try:
                yield worker
            finally:
                thread.run(stop(), timeout_s)
        finally:
            thread.close()
            worker.brokers = named

    def messages(self, topic: str, *, committed: bool = True) -> list[FetchedRecord]:
        """Returns all messages in a topic's log, by partition and offset; none without a topic.

        `committed` leaves out those of transactions that did not commit.
        """
        return self.run(self._hands().messages(topic, committed=committed))

    def dead_letters(self, topic: str) -> list[FetchedRecord]:
        """Returns the topic's dead letters; their headers `penstock-dlq-...` say why."""
        return self.messages(topic + DEAD_LETTER_SUFFIX)

    def wait_for(self, check: Callable[[], T], timeout_s: float = PATIENCE_S) -> T:
        """Calls `check` until it returns a true value, and returns it; for the progress of other
        threads.

        Raises TimeoutError after `timeout_s` real seconds.
        """
        deadline = time.monotonic() + timeout_s
        while not (answer := check()):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"still {answer!r} after {timeout_s:g} s")
            time.sleep(POLL_S)
        return answer

    def _hands(self) -> Hand:
        if self._hand is None:
            raise RuntimeError("the broker is not running")
        return self._hand


def _drive(loop: SkewedLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(_end_tasks())
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _begun(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    return asyncio.get_running_loop().create_task(work)


async def _end_tasks() -> None:
    """Cancels tasks that tests left running on the loop."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _texts(configs: Mapping[str, object] | None) -> dict[str, str]:
    return {name: str(value) for name, value in (configs or {}).items()}
