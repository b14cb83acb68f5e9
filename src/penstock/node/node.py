"""The composition root: the one place where a node's parts are made and joined.

Reads top to bottom in the order in which things start; what is started says at once how it is
stopped, so a start that fails half way is undone as far as it went. They stop in the reverse order:
no new requests, acknowledgements in flight, background tasks, logs synced and closed,
clean-shutdown marker, store, lock.

A background task that dies, or a disk that fails, stops the node rather than leaving it half
alive; then no clean-shutdown marker is written, and the next start recovers.
"""

import asyncio
import base64
import errno
import gc
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack

import uvloop

from penstock import __version__
from penstock.api.context import Context
from penstock.api.fetch_sessions import FetchSessions
from penstock.api.metrics import Metrics
from penstock.base.ids import NodeId
from penstock.base.ports import Expect, Put, Store
from penstock.cluster import keys
from penstock.cluster.configs import BrokerConfigs
from penstock.cluster.follower import Follower
from penstock.cluster.image import Image
from penstock.cluster.partitions import Partitions
from penstock.cluster.producer_ids import ProducerIds
from penstock.cluster.upkeep import Upkeep
from penstock.coordinator.groups import GroupCoordinator
from penstock.coordinator.host import Surroundings
from penstock.coordinator.internal_topics import InternalTopics
from penstock.coordinator.time import SteadyTime
from penstock.coordinator.transactions import TxnCoordinator
from penstock.http.app import HttpState
from penstock.http.server import HttpServer, start_http
from penstock.log.flusher import Flusher
from penstock.node import identity
from penstock.node.config import NodeConfig
from penstock.node.telemetry import observe
from penstock.runtime.clock import SystemClock
from penstock.runtime.disk import LocalDisk
from penstock.runtime.lock import DirectoryLock
from penstock.runtime.random import SystemRandom
from penstock.runtime.store import SqliteStore
from penstock.runtime.workers import ThreadWorkers
from penstock.server.listener import Limits, Listener

log = logging.getLogger("penstock.node")

DRAIN_SECONDS = 5.0
Ready = Callable[[str, str], None]


class NodeFailed(Exception):
    """The node cannot go on; the message says why."""


class Node:
    """One node: made, started, stopped."""

    config: NodeConfig
    disk: LocalDisk
    # What exists once it has started.
    ctx: Context
    flusher: Flusher
    partitions: Partitions
    groups: GroupCoordinator
    txns: TxnCoordinator
    listener: Listener

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.clock = SystemClock()
        self.random = SystemRandom()
        self.disk = LocalDisk()
        self.workers = ThreadWorkers()
        self.sync_workers = ThreadWorkers(1, name="sync")
        self.configs = BrokerConfigs({**config.overrides, "node.id": str(config.node_id)})
        self.metrics = Metrics()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Why the node cannot go on; never done while it can."""
        self.failed.add_done_callback(lambda failed: failed.exception())
        self._tasks: list[asyncio.Task[None]] = []
        self._is_ready = False
        self._to_stop = AsyncExitStack()

    # -- starting ---------------------------------------------------------------------------

    async def start(self) -> tuple[str, str]:
        """Serves when it returns; answers with the Kafka address and the HTTP address."""
        try:
            return await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> tuple[str, str]:
        config = self.config
        data_dir = config.data_dir
        self._to_stop.callback(DirectoryLock(data_dir).release)
        new_id = base64.urlsafe_b64encode(self.random.random_bytes(16)).rstrip(b"=").decode()
        meta = identity.claim(self.disk, data_dir, config.node_id, new_id)
        clean = identity.take_clean_states(self.disk, data_dir)
        self.store: Store = await SqliteStore.open(f"{data_dir}/metadata.db")
        self._to_stop.push_async_callback(self.store.close)
        await self._agree_on_cluster(meta.cluster_id)
        self.follower = Follower(self.store)
        image = await self.follower.start()
        self._follow_configs(image)
        self.flusher = Flusher(self.disk, self.sync_workers, self._disk_failed)
        self.partitions = Partitions(
            NodeId(config.node_id),
            self.disk,
            self.workers,
            self.clock,
            self.store,
            self.flusher,
            self.configs,
            f"{data_dir}/logs",
        )
        await self.partitions.start(image, clean)
        self._to_stop.push_async_callback(self._close_logs)
        self._coordinate()
        self.ctx = Context(
            node_id=NodeId(config.node_id),
            configs=self.configs,
            partitions=self.partitions,
            follower=self.follower,
            store=self.store,
            disk=self.disk,
            clock=self.clock,
            random=self.random,
            workers=self.workers,
            producer_ids=self.producer_ids,
            groups=self.groups,
            txns=self.txns,
            metrics=self.metrics,
            data_dir=data_dir,
            fetch_sessions=FetchSessions(first_id=self._first_session_id()),
            fetch_bytes_max=self.configs.integer("fetch.max.bytes"),
        )
        self.follower.on_change(self._configure)
        self.follower.on_change(self.partitions.follow)
        self.follower.on_change(self.groups.follow)
        for host in (self.groups.host, self.txns.host):
            self.partitions.on_change(host.follow)
            host.follow()
        self.upkeep = Upkeep(
            self.partitions, self.configs, self.disk, self.workers, self.clock, data_dir
        )
        self._to_stop.push_async_callback(self._cancel_tasks)
        self._watch("follower", self.follower.run())
        self._watch("partitions", self.partitions.run())
        self._watch("upkeep", self.upkeep.run())
        self._watch("groups", self.groups.host.run())
        self._watch("transactions", self.txns.run())
        port = await self._listen(meta.cluster_id)
        observe(self)
        await self._register(port)
        self._is_ready = True
        return _address(config.host, port), self.http.url

    async def _listen(self, cluster_id: str) -> int:
        """Opens both ports; answers with Kafka's."""
        host = self.config.host
        kafka_port, http_port = self.config.kafka_port, self.config.http_port
        self.listener = Listener(self.ctx, self._limits())
        try:
            port = await self.listener.start(host, kafka_port)
        except OSError as error:
            raise _cannot_listen(error, host, kafka_port, "--kafka-port") from error
        self._to_stop.push_async_callback(self._stop_listener)
        try:
            self.http: HttpServer = await start_http(
                host, http_port, self._http_state(cluster_id, port)
            )
        except OSError as error:
            raise _cannot_listen(error, host, http_port, "--http-port") from error
        self._to_stop.push_async_callback(self.http.stop)
        return port

    def _coordinate(self) -> None:
        """Makes the coordinators of groups and transactions."""
        around = Surroundings(self.partitions, self.follower, self.workers, SteadyTime(self.clock))
        topics = InternalTopics(
            self.store, self.follower, self.partitions, self.configs, self.random
        )
        self.producer_ids = ProducerIds(self.store)
        self.groups = GroupCoordinator(around, self.configs, topics)
        self.txns = TxnCoordinator(around, self.configs, topics, self.producer_ids, self.groups)

    async def _agree_on_cluster(self, cluster_id: str) -> None:
        record = keys.encode(keys.ClusterRecord(cluster_id))
        await self.store.commit([Expect(keys.CLUSTER_ID, 0)], [Put(keys.CLUSTER_ID, record)])
        entry = await self.store.get(keys.CLUSTER_ID)
        assert entry is not None
        stored = keys.decode(keys.ClusterRecord, entry.value).cluster_id
        if stored != cluster_id:
            raise NodeFailed(
                f"{self.config.data_dir} holds logs of cluster {cluster_id} but metadata of "
                f"cluster {stored}; restore the one that belongs to the other"
            )

    async def _register(self, port: int) -> None:
        config = self.config
        record = keys.BrokerRecord(config.node_id, config.host, port, http=self.http.url)
        revision = await self.store.commit(
            [], [Put(keys.broker_key(config.node_id), keys.encode(record))]
        )
        assert revision is not None
        await self.ctx.reached(revision)

    def _configure(self, before: Image, after: Image) -> None:
        self._follow_configs(after)
        self.ctx.fetch_bytes_max = self.configs.integer("fetch.max.bytes")

    def _follow_configs(self, image: Image) -> None:
        own = image.broker_configs.get(self.config.node_id, {})
        self.configs.follow(image.cluster_configs, own)

    def _first_session_id(self) -> int:
        return int.from_bytes(self.random.random_bytes(4), "big") // 4 + 1

    def _limits(self) -> Limits:
        configs = self.configs
        return Limits(
            connections_max=configs.integer("max.connections"),
            connections_per_ip_max=configs.integer("max.connections.per.ip"),
            idle_ms_max=configs.integer("connections.max.idle.ms"),
            frame_bytes_max=configs.integer("socket.request.max.bytes"),
            buffered_bytes_max=configs.integer("queued.max.request.bytes"),
        )

    def _http_state(self, cluster_id: str, port: int) -> HttpState:
        return HttpState(
            version=__version__,
            node_id=self.config.node_id,
            cluster_id=cluster_id,
            kafka_address=_address(self.config.host, port),
            catalogue=self.metrics.catalogue,
            health_problem=lambda: "the node has failed" if self.failed.done() else None,
            readiness_problem=lambda: (
                None if self._is_ready else "the node is starting or stopping"
            ),
        )

    # -- failing ----------------------------------------------------------------------------

    def _watch(self, name: str, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._task_ended)
        self._tasks.append(task)

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled() or self.failed.done():
            return
        error = task.exception()
        failure = NodeFailed(f"the {task.get_name()} task ended: {error!r}")
        failure.__cause__ = error
        log.error("stopping", exc_info=failure)
        self.failed.set_exception(failure)

    def _disk_failed(self, error: OSError) -> None:
        if not self.failed.done():
            self.failed.set_exception(
                NodeFailed(
                    f"the disk failed to make data durable ({error}); nothing more is "
                    "acknowledged. Check the disk, then start again: recovery keeps everything "
                    "that was acknowledged before."
                )
            )

    # -- stopping ---------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stops what was started, once. Clean unless the node failed, before or meanwhile: then
        everything appended is on disk, and the next start need not look."""
        self._is_ready = False
        await self._to_stop.aclose()

    async def _stop_listener(self) -> None:
        await self.listener.stop(0.0 if self.failed.done() else DRAIN_SECONDS)

    async def _close_logs(self) -> None:
        if not self.failed.done():
            await self.flusher.drain()
        if self.failed.done():
            return  # Nothing on disk is promised: the next start looks for itself.
        states = await self.workers.run(self.partitions.close)
        await self.workers.run(identity.leave_clean_states, self.disk, self.config.data_dir, states)

    async def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _cannot_listen(error: OSError, host: str, port: int, flag: str) -> NodeFailed:
    """One line: what, why, and what to do about it."""
    where = _address(host, port)
    if error.errno == errno.EADDRINUSE:
        return NodeFailed(
            f"{where} is in use by another process; stop that one, or choose another port with "
            f"{flag} (0 picks a free one)"
        )
    if error.errno == errno.EACCES:
        return NodeFailed(
            f"no permission to listen on {where}; choose a port above 1023 with {flag}"
        )
    return NodeFailed(f"cannot listen on {where}: {error.strerror or error}; see --host and {flag}")


async def serve(config: NodeConfig, ready: Ready) -> None:
    """Runs a node until SIGTERM or SIGINT; raises NodeFailed if it cannot go on."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    node = Node(config)
    kafka, http = await node.start()
    try:
        # What was made at start lives as long as the node: the collector need not look at it.
        gc.collect()
        gc.freeze()
        ready(kafka, http)
        await _either(stop, node.failed)
    finally:
        await node.stop()
    if node.failed.done():
        await node.failed


async def _either(stop: asyncio.Event, failed: "asyncio.Future[None]") -> None:
    """Returns when asked to stop, or when the node has failed."""
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait((stopping, failed), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()


def run(config: NodeConfig, ready: Ready) -> None:
    """`serve` on a loop of its own. Assertions are part of the design, so -O is refused."""
    if sys.flags.optimize:
        raise NodeFailed("Penstock does not run under python -O: its assertions must stay on")
    uvloop.run(serve(config, ready))
