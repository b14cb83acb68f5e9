"""Composition root: creates and connects all parts of a node.

Reads top to bottom in start order. Each part that starts registers at once how it is stopped, so a
start that fails half way is undone as far as it went. Parts stop in reverse order: registration,
new requests, acknowledgements in flight, background tasks, logs synced and closed, clean-shutdown
marker, store, lock.

A background task that dies, or a disk that fails, stops the node rather than leaving it half alive;
then no clean-shutdown marker is written, and the next start recovers.

Controlled shutdown: keeps serving for a bounded time until other nodes lead its partitions.

State of the HTTP port and of the console, taken from the node.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace

from penstock import __version__
from penstock.base.ids import NodeId
from penstock.base.ports import Disk, Store
from penstock.broker.api.context import Context, DataDirectory, ReplicaReads, make_context
from penstock.broker.api.data.fetch import selects
from penstock.broker.api.data.fetch_sessions import FetchSessions
from penstock.broker.api.data.replica_fetch_sessions import ReplicaSessions
from penstock.broker.api.metrics import Metrics
from penstock.broker.api.quota import Meter
from penstock.cluster.configs.effective_configs import BrokerConfigs, InvalidConfig
from penstock.cluster.controller.controller import Controller
from penstock.cluster.controller.recent_failures import RecentFailures
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.image import Image
from penstock.cluster.metadata.known_metadata import KnownMetadataFile, StoreWentBack
from penstock.cluster.metadata.membership import (
    ClusterMembership,
    NodeIdTaken,
    leads_what_others_could,
)
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.peer_liveness import PeerLiveness
from penstock.cluster.metadata.peer_reachability import PeerReachability
from penstock.cluster.metadata.producer_ids import ProducerIds
from penstock.cluster.replication.fetchers import Fetchers
from penstock.cluster.replication.isr import IsrMaintenance
from penstock.cluster.replication.partitions import Partitions
from penstock.cluster.replication.peer_connections import PeerConnections
from penstock.cluster.replication.throttle import Throttle
from penstock.cluster.storage.compaction_schedule import Compactor
from penstock.cluster.storage.housekeeping import Housekeeping
from penstock.coordinator.audit_log import AuditLog
from penstock.coordinator.groups import GroupCoordinator
from penstock.coordinator.groups_by_topic import Positions
from penstock.coordinator.queues.ack_retention import AckRetention
from penstock.coordinator.queues.admin import QueueAdmin
from penstock.coordinator.queues.backlog_limits import BacklogLimits
from penstock.coordinator.queues.dead_letter_writer import DeadLetterWriter
from penstock.coordinator.queues.delay_retention import DelayRetention
from penstock.coordinator.queues.open_queues import QueueCoordinator
from penstock.coordinator.queues.queue_metrics import QueueWatch
from penstock.coordinator.queues.router import QueueRouter
from penstock.coordinator.queues.wakeup import QueueWakeup
from penstock.coordinator.registry import RegistryCoordinator
from penstock.coordinator.runtime.internal_topics import InternalTopics
from penstock.coordinator.runtime.shard_host import HostContext
from penstock.coordinator.runtime.steady_clock import SteadyTime
from penstock.coordinator.transactions import TxnCoordinator
from penstock.gateway.app import HttpState
from penstock.gateway.console.console import About, Console
from penstock.gateway.console.mount import ConsoleMount
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.move_tasks import MoveTasks
from penstock.gateway.server import HttpServer, start_http
from penstock.log.flusher import Flusher
from penstock.node import data_directory, join, metadata_check
from penstock.node.config import NodeConfig
from penstock.node.kafka_listeners import CannotListen, KafkaListeners
from penstock.node.listeners import cannot_listen, plain_listener, show_address
from penstock.node.metrics.node_metrics import Watching, observe
from penstock.node.open_logs import open_logs
from penstock.node.ports import Ports, real_ports
from penstock.node.security import encryption_keys
from penstock.node.security.security_setup import NodeSecurity, secure


def web_of(node: "Node", cluster_id: str, kafka_address: str) -> tuple[HttpState, Console]:
    logins = node.security.logins
    console = Console(node.gateway, About(__version__, cluster_id, kafka_address), logins)
    state = HttpState(
        version=__version__,
        node_id=node.config.node_id,
        cluster_id=cluster_id,
        kafka_address=kafka_address,
        catalogue=node.metrics.catalogue,
        health_problem=lambda: "the node has failed" if node.failed.done() else None,
        readiness_problem=node.readiness_problem,
        gateway=node.gateway,
        users=logins,
        moves=node.moves,
        console=ConsoleMount(console),
    )
    return state, console


HAND_OVER_SECONDS = 30.0
"""Maximum wait of a stopping node for other nodes to take over its partitions."""
POLL_SECONDS = 0.02


async def hand_over(
    membership: ClusterMembership,
    watcher: MetadataWatcher,
    is_hurried: asyncio.Event,
    failed: "asyncio.Future[None]",
) -> None:
    """Returns once leadership is handed over, the stop is hurried, or the node has failed."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + HAND_OVER_SECONDS
    is_possible = await membership.drain()
    while leads_what_others_could(watcher.image, membership.node_id):
        is_possible = is_possible and not membership.is_fenced
        if not is_possible or is_hurried.is_set() or failed.done():
            break
        if loop.time() >= deadline_s:
            log.warning(
                "stopping while this node still leads partitions that other nodes could lead"
            )
            break
        await asyncio.sleep(POLL_SECONDS)


log = logging.getLogger("penstock.node")

DRAIN_SECONDS = 5.0


class NodeFailed(Exception):
    """The node cannot continue; the message says why."""


class Node:
    """One node, from creation to stop."""

    config: NodeConfig
    disk: Disk
    # Set once the node has started.
    watcher: MetadataWatcher
    ctx: Context
    gateway: Gateway
    moves: MoveTasks
    flusher: Flusher
    partitions: Partitions
    memory: KnownMetadataFile
    membership: ClusterMembership
    controller: Controller
    links: PeerLiveness
    reach: PeerReachability
    isr: IsrMaintenance
    peers: PeerConnections
    fetchers: Fetchers
    groups: GroupCoordinator
    txns: TxnCoordinator
    queues: QueueCoordinator
    queue_watch: QueueWatch
    ack_retention: AckRetention
    registry: RegistryCoordinator
    audit: AuditLog
    security: NodeSecurity
    kafka_listeners: KafkaListeners

    def __init__(self, config: NodeConfig, ports: Ports | None = None) -> None:
        self.config = config
        self.ports = ports if ports is not None else real_ports(config.etcd)
        self.clock = self.ports.clock
        self.random = self.ports.random
        self.disk = self.ports.disk
        self.workers = self.ports.workers
        self.sync_workers = self.ports.sync_workers
        self.configs = BrokerConfigs(
            {
                "listeners": plain_listener(config.host, config.kafka_port),
                **config.overrides,
                "broker.id": str(config.node_id),
                "log.dirs": config.data_dir,
                "node.id": str(config.node_id),
                "process.id": str(self.ports.process_id),
            }
        )
        self.metrics = Metrics()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Reason why the node cannot continue; not done while it can."""
        self.failed.add_done_callback(lambda failed: failed.exception())
        self._tasks: list[asyncio.Task[None]] = []
        self._is_ready = False
        self._is_leaving = False
        self._is_hurried = asyncio.Event()
        self._to_stop = AsyncExitStack()

    # -- starting ---------------------------------------------------------------------------

    async def start(self) -> tuple[str, str]:
        """Returns once the node serves, with the Kafka address and the HTTP address."""
        try:
            return await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> tuple[str, str]:
        config, configs = self.config, self.configs
        self._to_stop.callback(self.ports.lock(config.data_dir).release)
        meta, is_new = await self._join()
        try:
            await open_logs(self, meta, is_new)
            self._to_stop.push_async_callback(self._close_logs)
            self.security = await secure(config, configs, self.store, self.watcher, self.ports)
        except (InvalidConfig, metadata_check.StoreIsOlder) as error:
            raise NodeFailed(str(error)) from error
        self.peers = PeerConnections(config.node_id, self.watcher, *self.security.introduction)
        self._to_stop.push_async_callback(self.peers.close)
        self._coordinate()
        self.ctx = self._context()
        self.gateway = Gateway(self.ctx, self.ports.tracer(self.configs.flag("tracing.enable")))
        self.moves = MoveTasks(self.gateway)
        self._follow()
        self._replicate()
        self._to_stop.push_async_callback(self._cancel_tasks)
        self._watch("follower", self.watcher.run())
        if self.ports.keeps_metadata:
            self._watch("memory", self.memory.run())
        self._watch("partitions", self.partitions.run())
        self._watch("upkeep", self.housekeeping.run())
        self._watch("compaction", self.compactor.run())
        self._watch("retention", self.ack_retention.run())
        self._watch("backlogs", BacklogLimits(self.queues, self.positions, self.configs).run())
        self._watch("groups", self.groups.host.run())
        self._watch("transactions", self.txns.run())
        self._watch("queues", self.queues.run())
        self._watch("registry", self.registry.run())
        self._watch("queue waking", self.queue_waking.run())
        self._watch("queue watch", self.queue_watch.run())
        self._watch("watching", self.watching.run())
        self._watch("audit", self.audit.run())
        port = await self._listen(meta.cluster_id)
        # Before the port closes: other nodes are notified instead of having to detect it.
        self._to_stop.push_async_callback(self.membership.leave)
        # Consumers that wait for records get an answer instead of delaying the stop.
        self._to_stop.callback(self.queues.close)
        self._to_stop.push_async_callback(self.audit.drain)
        observe(self)
        await self._register(meta.directory_id)
        self._watch("membership", self.membership.run())
        self._watch("controller", self.controller.run())
        self._watch("links", self.links.run())
        self._watch("reach", self.reach.run())
        self._watch("isr", self.isr.run())
        self._watch("moves", self.moves.run())
        self._watch("fetchers", self.fetchers.run())
        self.fetchers.follow()
        self._is_ready = True
        return show_address(self.kafka_listeners.endpoints[0].host, port), self.http.url

    def _context(self) -> Context:
        """Returns the parts of the node that requests may use."""
        config = self.config
        return make_context(
            node_id=NodeId(config.node_id),
            configs=self.configs,
            partitions=self.partitions,
            watcher=self.watcher,
            failures=RecentFailures(self.watcher),
            membership=self.membership,
            store=self.store,
            clock=self.clock,
            random=self.random,
            workers=self.workers,
            producer_ids=self.producer_ids,
            groups=self.groups,
            txns=self.txns,
            queues=self.queues,
            queue_admin=self.queue_admin,
            queue_router=QueueRouter(self.queues.around, self.queues),
            positions=self.positions,
            registry=self.registry,
            audit=self.audit,
            metrics=self.metrics,
            directory=DataDirectory(self.disk, config.data_dir),
            authorizer=self.security.authorizer,
            meter=Meter(self.metrics, self.configs, self.watcher.image, self.ports.processor_s),
            fetch_sessions=FetchSessions(
                self.configs.integer("max.incremental.fetch.session.cache.slots"),
                first_id=self._first_session_id(),
            ),
            encryption=self.unlocked.encryption(self.partitions, self.ports),
            replicas=ReplicaReads(
                ReplicaSessions(first_id=self._first_session_id()),
                Throttle("leader", config.node_id, self.configs, self.watcher),
                selects(self.configs.text("replica.selector.class")),
            ),
        )

    def _follow(self) -> None:
        """Notifies every part of the changes that concern it."""
        self.watcher.on_change(self._configure)
        self.watcher.on_change(self.security.authorizer.follow)
        self.watcher.on_change(self.ctx.meter.follow)
        self.watcher.on_change(self.membership.follow)
        self.watcher.on_change(self.partitions.follow)
        self.watcher.on_change(self.groups.follow)
        self.watcher.on_change(self.queues.follow)
        self.watcher.on_change(self.queue_waking.follow)
        coordinators = (self.groups, self.txns, self.queues.keeping, self.registry)
        for host in (coordinator.host for coordinator in coordinators):
            self.partitions.on_change(host.follow)
            host.follow()
        self.housekeeping: Housekeeping = Housekeeping(
            self.partitions, self.configs, self.disk, self.workers, self.clock, self.config.data_dir
        )
        self.compactor: Compactor = Compactor(
            self.partitions,
            self.configs,
            self.disk,
            self.workers,
            self.ports.cleaner_workers,
            self.clock,
            self.housekeeping,
        )
        delays = DelayRetention(self.queues, self.positions, self.workers)
        self.housekeeping.expires_until = delays.expires_until
        self.ack_retention = AckRetention(
            self.queues, self.positions, self.configs, self.housekeeping, self.clock
        )

    async def _listen(self, cluster_id: str) -> int:
        """Opens both ports; returns Kafka's."""
        host = self.config.host
        http_port = self.config.http_port
        try:
            self.kafka_listeners = KafkaListeners(self.ctx, self.configs, self.security)
            self._to_stop.push_async_callback(self._stop_front)
            await self.kafka_listeners.open()
            self.watcher.on_change(lambda before, after: self.kafka_listeners.follow())
        except (InvalidConfig, CannotListen) as error:
            raise NodeFailed(str(error)) from error
        self._watch("certificates", self.kafka_listeners.watch_certificates(self.workers))
        port = self.kafka_listeners.port
        state, console = web_of(self, cluster_id, show_address(host, port))
        self._watch("console", console.run())
        try:
            self.http: HttpServer = await start_http(
                host, http_port, state, self.kafka_listeners.open_http
            )
        except OSError as error:
            raise NodeFailed(cannot_listen(error, host, http_port, "--http-port")) from error
        self._to_stop.push_async_callback(self.http.stop)
        return port

    def _replicate(self) -> None:
        """Creates the parts that communicate with other nodes."""
        node_id, configs, count = self.config.node_id, self.configs, self.metrics.count_election
        self.controller = Controller(
            node_id, self.store, self.watcher, configs, self.membership, count
        )
        self.reach = PeerReachability(
            self.store, self.watcher, self.membership, configs, self.random, self.peers.close_node
        )
        self.partitions.is_reachable = self.reach.is_reachable
        report, failures = self.controller.evidence, self.ctx.metadata.failures
        self.links = PeerLiveness(
            node_id, report, failures, self.reach, self.random, *self.security.introduction
        )
        self.isr = IsrMaintenance(
            node_id, self.store, self.watcher, self.partitions, configs, self.reach.unreachable
        )
        self.fetchers = Fetchers(
            node_id,
            lambda: self.membership.epoch,
            self.partitions,
            self.peers,
            self.watcher,
            configs,
            self.workers,
            self.clock,
            self.random,
        )
        self.membership.on_fenced(self.partitions.fence)
        self.watcher.on_change(self.links.follow)
        self.watcher.on_change(self.peers.follow)
        self.partitions.on_change(self.fetchers.follow)

    def _coordinate(self) -> None:
        """Creates the coordinators of groups, transactions and queues."""
        around = HostContext(
            self.partitions,
            self.watcher,
            self.workers,
            SteadyTime(self.clock),
            self.peers,
            self.random,
        )
        topics = InternalTopics(
            self.store, self.watcher, self.partitions, self.configs, self.random
        )
        self.producer_ids = ProducerIds(self.store, self.memory.producer_ids)
        self.groups = GroupCoordinator(
            self._around_members(around), self.configs, topics, self.security.authorizer.shows
        )
        self.txns = TxnCoordinator(around, self.configs, topics, self.producer_ids, self.groups)
        dead_letter_writer = DeadLetterWriter(
            around, self.configs, self.store, self.random, self.producer_ids
        )
        self.queues = QueueCoordinator(around, self.configs, topics, dead_letter_writer)
        self.queue_admin = QueueAdmin(around, self.queues)
        self.registry = RegistryCoordinator(around, topics)
        self.audit = AuditLog(around, topics, self.configs)
        self.positions = Positions(around, self.queues.keeping, self.groups)
        self.queue_waking = QueueWakeup(around, self.queues.keeping, self.queue_admin)
        self.queue_watch = QueueWatch(self.queues)
        self.watching = Watching(around, self.groups, self.metrics.loop_lag)

    def _around_members(self, around: HostContext) -> HostContext:
        make = self.ports.member_time
        return around if make is None else replace(around, time=make())

    async def _join(self) -> tuple[data_directory.Meta, bool]:
        """Opens the metadata, and checks that this directory and node id belong to it.

        Returns the owner of the directory, and whether the directory is new.
        """
        config = self.config
        try:
            known = join.look(self.ports, config)
            self.unlocked = await encryption_keys.unlock(self.ports, self.configs, config.data_dir)
            self.store: Store = await join.open_store(self.ports, config, log.warning)
            self._to_stop.push_async_callback(self.store.close)
            meta = await join.agree(self.ports, config, self.store, known)
            self.membership = ClusterMembership(
                config.node_id, self.store, self.configs, is_leased=self.ports.is_store_shared
            )
            await self.membership.await_vacancy(meta.directory_id, log.warning)
        except (join.CannotJoin, NodeIdTaken) as error:
            raise NodeFailed(str(error)) from error
        return meta, known is None

    async def _register(self, directory_id: str) -> None:
        config = self.config
        addresses = self.kafka_listeners.addresses()
        host, port = addresses[self.kafka_listeners.endpoints[0].name]
        record = store_keys.BrokerRecord(
            config.node_id,
            host,
            port,
            rack=self.configs.text("broker.rack"),
            http=self.http.url,
            directory_id=directory_id,
            pid=self.ports.process_id,
            endpoints=addresses if len(addresses) > 1 else {},
        )
        try:
            revision = await self.membership.register(record)
        except NodeIdTaken as error:
            raise NodeFailed(str(error)) from error
        await self.ctx.reached(revision)

    def _configure(self, before: Image, after: Image) -> None:
        self._follow_configs(after)
        self.ctx.limit_fetches(self.configs.integer("fetch.max.bytes"))

    def _follow_configs(self, image: Image) -> None:
        own = image.broker_configs.get(self.config.node_id, {})
        self.configs.follow(image.cluster_configs, own)

    def _first_session_id(self) -> int:
        return int.from_bytes(self.random.random_bytes(4), "big") // 4 + 1

    def readiness_problem(self) -> str | None:
        if not self._is_ready or self._is_leaving:
            return "the node is starting or stopping"
        if self.membership.is_fenced:
            return "the node could not renew its lease and takes no writes until it can"
        return None

    # -- failing ----------------------------------------------------------------------------

    def _watch(self, name: str, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._task_ended)
        self._tasks.append(task)

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled() or self.failed.done():
            return
        error = task.exception()
        if isinstance(error, NodeIdTaken | StoreWentBack):
            failure = NodeFailed(str(error))
        else:
            failure = NodeFailed(f"the {task.get_name()} task ended: {error!r}")
            failure.__cause__ = error
            log.error("stopping", exc_info=failure)
        self.failed.set_exception(failure)

    def _disk_failed(self, error: OSError) -> None:
        if not self.failed.done():
            why = (
                f"the disk failed to make data durable ({error}); no more writes are acknowledged. "
                "Check the disk, then start again: recovery keeps everything that was acknowledged."
            )
            self.failed.set_exception(NodeFailed(why))

    # -- stopping ---------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stops all parts, once.

        Unless the node has failed, everything appended is on disk afterwards, and the next start
        need not scan.
        """
        self._is_leaving = True
        hands_over = self.ports.is_store_shared and self.configs.flag("controlled.shutdown.enable")
        if self._is_ready and hands_over and not self.failed.done():
            await hand_over(self.membership, self.watcher, self._is_hurried, self.failed)
        self._is_ready = False
        await self._to_stop.aclose()

    def hurry(self) -> None:
        """Stops without handing over leadership."""
        self._is_hurried.set()

    async def _stop_front(self) -> None:
        await self.kafka_listeners.stop(0.0 if self.failed.done() else DRAIN_SECONDS)

    async def _close_logs(self) -> None:
        if not self.failed.done():
            await self.flusher.drain()
        if self.failed.done():
            return  # Nothing on disk is guaranteed: the next start scans.
        states = await self.workers.run(self.partitions.close)
        life = self.membership.life
        await self.workers.run(
            data_directory.leave_clean_states,
            self.disk,
            self.config.data_dir,
            states,
            life.number if life is not None else 0,
        )

    async def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
