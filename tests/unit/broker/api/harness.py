"""One node's metadata and partitions on simulated ports, and handlers called as the server would.

Requests and responses go through their codecs at the version under test, so a handler that fills
in something its version cannot carry fails here and not at a client.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.base.ids import NodeId
from penstock.base.ports import Buffer, Put
from penstock.broker.api.call import Call, Prepared
from penstock.broker.api.context import Context, DataDirectory, make_context
from penstock.broker.api.metrics import Metrics
from penstock.broker.api.quota import Meter
from penstock.broker.api.route_row import Needs, Operation, ResourceType, Route
from penstock.broker.server.send_queue import BUFFERS
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.controller.recent_failures import RecentFailures
from penstock.cluster.metadata import store_keys, topics
from penstock.cluster.metadata.image import Image
from penstock.cluster.metadata.membership import ClusterMembership
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.producer_ids import ProducerIds
from penstock.cluster.metadata.topics import NewTopic
from penstock.cluster.replication.partitions import Partitions
from penstock.cluster.replication.peer_connections import PeerConnections
from penstock.coordinator.audit_log import AuditLog
from penstock.coordinator.groups import GroupCoordinator
from penstock.coordinator.groups_by_topic import Positions
from penstock.coordinator.queues.admin import QueueAdmin
from penstock.coordinator.queues.dead_letter_writer import DeadLetterWriter
from penstock.coordinator.queues.open_queues import QueueCoordinator
from penstock.coordinator.queues.router import QueueRouter
from penstock.coordinator.registry import RegistryCoordinator
from penstock.coordinator.runtime.internal_topics import InternalTopics
from penstock.coordinator.runtime.shard_host import HostContext
from penstock.coordinator.runtime.steady_clock import SteadyTime
from penstock.coordinator.transactions import TxnCoordinator
from penstock.log.flusher import Flusher
from penstock.security.login import Login
from penstock.wire.codec import reader, writer
from penstock.wire.framing import PART_BYTES_JOINED
from penstock.wire.messages import RESPONSES
from penstock.wire.records import Record, encode, read_header
from simulation.clock import SimClock
from simulation.disk import SimDisk
from simulation.loop import SimLoop, run
from simulation.random import SimRandom
from simulation.store import SimEtcd, SimStore
from simulation.workers import SimWorkers

NODE = NodeId(1)
T = TypeVar("T")


@dataclass
class Rights:
    """Everything is allowed but what a test denies."""

    denied: set[tuple[Operation, ResourceType, str]] = field(default_factory=set)

    is_on = True

    def allows(
        self,
        principal: str,
        operation: Operation,
        resource: ResourceType,
        name: str,
        host: str = "*",
    ) -> bool:
        return (operation, resource, name) not in self.denied

    def shows(self, principal: str, host: str, topic: str) -> bool:
        return self.allows(principal, Operation.DESCRIBE, ResourceType.TOPIC, topic, host)

    def allows_some(
        self, principal: str, operation: Operation, resource: ResourceType, host: str = "*"
    ) -> bool:
        return (operation, resource, "*") not in self.denied

    def deny(self, operation: Operation, resource: ResourceType, name: str) -> None:
        self.denied.add((operation, resource, name))


class Client:
    """The connection behind a call: keeps the reply that a handler gives later."""

    principal = "User:tester"
    peer = "127.0.0.1"
    listener = "PLAINTEXT"
    local_host = "10.0.0.9"
    login: Login | None = None

    def __init__(self) -> None:
        self.reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.is_closed = False
        self.muted_s = 0.0
        self.closers: list[Callable[[], None]] = []

    def encode(self, call: Call, response: Any) -> list[Buffer]:
        self.reply.set_result(response)
        return []

    def settle(self, call: Call) -> None:
        assert call.is_done

    def close(self) -> None:
        self.is_closed = True

    def mute(self, seconds: float) -> None:
        self.muted_s = max(self.muted_s, seconds)

    def again(self) -> "Client":
        """The same connection, for its next call."""
        if self.reply.done():
            self.reply = asyncio.get_running_loop().create_future()
        return self

    def lose(self) -> None:
        """The connection is gone."""
        for act in self.closers:
            act()

    def when_closed(self, act: Callable[[], None]) -> None:
        self.closers.append(act)


class Pending:
    """A call that waits for its reply."""

    def __init__(self, call: Call, client: Client, version: int) -> None:
        self.call = call
        self._client = client
        self._reply = client.reply
        self._version = version

    @property
    def is_answered(self) -> bool:
        return self._reply.done()

    @property
    def is_hung_up(self) -> bool:
        """The handler had no answer but the end of the connection."""
        return self._client.is_closed

    async def reply(self) -> Any:
        return through_wire(await self._reply, self._version)


class Node:
    """A context whose image and partitions are kept up to date by the real follower."""

    ctx: Context
    rights: Rights

    async def start(self, loop: SimLoop, configs: dict[str, str]) -> "Node":
        self.etcd = SimEtcd(loop.seed)
        self.store = SimStore(self.etcd)
        broker = store_keys.BrokerRecord(NODE, "localhost", 9092, rack="r1")
        await self.store.commit(
            [],
            [
                Put(
                    store_keys.CLUSTER_ID,
                    store_keys.encode(store_keys.ClusterRecord("the-cluster")),
                ),
            ],
        )
        self.disk, self.workers = SimDisk(loop.seed), SimWorkers(loop.seed)
        self.disk.mkdir("data")
        self.disk.sync_dir("")
        self.configs = BrokerConfigs(configs)
        membership = ClusterMembership(NODE, self.store, self.configs, is_leased=False)
        await membership.register(broker)
        self.failures: list[OSError] = []
        clock = SimClock(loop)
        flusher = Flusher(self.disk, self.workers, self.failures.append)
        partitions = Partitions(
            NODE, self.disk, self.workers, clock, self.store, flusher, self.configs, "data/logs"
        )
        watcher = MetadataWatcher(self.store)
        await partitions.start(await watcher.start(), None)
        watcher.on_change(self._configure)
        watcher.on_change(partitions.follow)
        producer_ids = ProducerIds(self.store)
        random = SimRandom(loop.seed)
        peers = PeerConnections(NODE, watcher)
        self.around = around = HostContext(
            partitions, watcher, self.workers, SteadyTime(clock), peers, random
        )
        internal = InternalTopics(self.store, watcher, partitions, self.configs, random)
        self.rights = Rights()
        groups = GroupCoordinator(around, self.configs, internal, self.rights.shows)
        txns = TxnCoordinator(around, self.configs, internal, producer_ids, groups)
        dead_letter_writer = DeadLetterWriter(
            around, self.configs, self.store, random, producer_ids
        )
        queues = QueueCoordinator(around, self.configs, internal, dead_letter_writer)
        registry = RegistryCoordinator(around, internal)
        watcher.on_change(groups.follow)
        watcher.on_change(queues.follow)
        partitions.on_change(groups.host.follow)
        partitions.on_change(txns.host.follow)
        partitions.on_change(queues.keeping.host.follow)
        partitions.on_change(registry.host.follow)
        hosts = (groups.host.run(), txns.run(), queues.run(), registry.run())
        work = (watcher.run(), partitions.run(), *hosts)
        self._tasks = [asyncio.ensure_future(each) for each in work]
        metrics = Metrics()
        self.ctx = make_context(
            node_id=NODE,
            configs=self.configs,
            partitions=partitions,
            watcher=watcher,
            failures=RecentFailures(watcher),
            membership=membership,
            store=self.store,
            clock=clock,
            random=random,
            workers=self.workers,
            producer_ids=producer_ids,
            groups=groups,
            txns=txns,
            queues=queues,
            queue_admin=QueueAdmin(around, queues),
            queue_router=QueueRouter(around, queues),
            positions=Positions(around, queues.keeping, groups),
            registry=registry,
            audit=AuditLog(around, internal, self.configs),
            metrics=metrics,
            directory=DataDirectory(self.disk, "data"),
            meter=Meter(metrics, self.configs, watcher.image),
            authorizer=self.rights,
        )
        watcher.on_change(self.ctx.meter.follow)
        return self

    def _configure(self, before: Image, after: Image) -> None:
        self.configs.follow(after.cluster_configs, after.broker_configs.get(NODE, {}))

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs until the node stops."""
        self._tasks.append(asyncio.ensure_future(work))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def put(self, key: str, record: Any) -> None:
        """Changes the store behind the handlers' back."""
        revision = await self.store.commit([], [Put(key, store_keys.encode(record))])
        assert revision is not None
        await self.ctx.reached(revision)

    async def ask(
        self,
        handler: Callable[..., Any],
        version: int,
        request: Any,
        client: Client | None = None,
    ) -> Any:
        """The handler's answer to `request`, both as the wire would carry them."""
        return await (await self.send(handler, version, request, client)).reply()

    async def send(
        self,
        handler: Callable[..., Any],
        version: int,
        request: Any,
        client: Client | None = None,
    ) -> Pending:
        """Hands `request` over; the reply may come later."""
        pending, answer = self.begin(handler, version, through_wire(request, version), client)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is not None:
            assert type(answer) is RESPONSES[type(request).WIRE.key]
            pending.call.reply(answer)
        return pending

    def begin(
        self,
        handler: Callable[..., Any],
        version: int,
        request: Any,
        client: Client | None = None,
    ) -> tuple[Pending, Any]:
        """The call, and what the handler returned: an answer, a coroutine, or None for later.

        `client` is the connection that it comes on, where several calls share one.
        """
        kind = type(request)
        response_kind = RESPONSES[kind.WIRE.key]
        needs = Needs(ResourceType.TOPIC, Operation.DESCRIBE)
        route = Route(kind, response_kind, kind.WIRE.versions, handler, needs)
        loop = asyncio.get_running_loop()
        client = Client() if client is None else client.again()
        prepared = Prepared(
            route,
            version,
            reader(kind, version),
            writer(response_kind, version),
            self.ctx.metrics.route(route.name),
        )
        call = Call(client, prepared, 1, "tester", version, 0, client.encode, loop.time)
        return Pending(call, client, version), handler(self.ctx.of(handler), call, request)

    async def create(self, name: str, partitions: int, **configs: str) -> None:
        """A topic with everything else as the broker would choose it; `_` in names is a dot."""
        ctx = self.ctx
        own = {key.replace("_", "."): value for key, value in configs.items()}
        new = NewTopic(name, partitions, configs=own)
        plan = topics.plan_topic(new, ctx.image, ctx.configs, ctx.random)
        await ctx.reached(await topics.create_topic(ctx.admin.store, plan))

    async def delete(self, name: str) -> None:
        await self.ctx.reached(await topics.delete_topic(self.ctx.admin.store, name))

    async def produce(
        self, topic: str, count: int, *, index: int = 0, timestamp: int = 1000, step: int = 0
    ) -> None:
        """Appends `count` one-record batches and waits until they are durable."""
        partition = self.ctx.partitions.get(topic, index)
        assert partition is not None
        for number in range(count):
            record = Record(0, timestamp + number * step, None, b"v%d" % number, ())
            batch = memoryview(
                encode([record], producer_id=7, producer_epoch=0, base_sequence=number)
            )
            partition.append(batch, read_header(batch), self.ctx.clock.now_ms())
        while partition.high_watermark < partition.log.end_offset:
            await asyncio.sleep(0.01)


def _whole(part: Any) -> bytes:
    """The bytes that a part of a reply stands for; some are still in their file."""
    return bytes(part) if isinstance(part, BUFFERS) else part.take(len(part))


def through_wire(message: T, version: int) -> T:
    kind: Any = type(message)
    parts: list[Any] = []
    writer(kind, version)(message, parts)
    # The server joins small parts, and can join only what is in memory.
    assert all(isinstance(part, BUFFERS) or len(part) >= PART_BYTES_JOINED for part in parts)
    view = memoryview(bytearray().join(_whole(part) for part in parts))
    read, position = reader(kind, version)(view, 0, len(view))
    assert position == len(view)
    result: T = read
    return result


def error_codes(message: Any) -> Iterator[int]:
    """Every error code in a response, however deep."""
    for each in type(message).WIRE.fields:
        value = getattr(message, each.name)
        if each.name.endswith("error_code"):
            yield value
        elif each.kind == "array" and isinstance(each.of, type):
            for item in value or ():
                yield from error_codes(item)


def on_node(
    test: Callable[[Node], Awaitable[None]], seed: int = 0, configs: dict[str, str] | None = None
) -> None:
    """Runs `test(node)` on a simulated loop."""

    async def main(loop: SimLoop) -> None:
        node = await Node().start(loop, configs or {})
        try:
            await test(node)
        finally:
            await node.stop()

    main_of: Callable[[SimLoop], Coroutine[Any, Any, None]] = main
    run(main_of, seed)
