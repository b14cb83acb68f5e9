"""One node's metadata and partitions on simulated ports, and handlers called as the server would.

Requests and responses go through their codecs at the version under test, so a handler that fills
in something its version cannot carry fails here and not at a client.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.api.context import Call, Context, Prepared
from penstock.api.metrics import Metrics
from penstock.api.route import Needs, Operation, ResourceType, Route
from penstock.base.ids import NodeId
from penstock.base.ports import Put
from penstock.cluster import keys
from penstock.cluster.configs import BrokerConfigs
from penstock.cluster.follower import Follower
from penstock.cluster.image import Image
from penstock.cluster.partitions import Partitions
from penstock.cluster.producer_ids import ProducerIds
from penstock.log.flusher import Flusher
from penstock.sim.clock import SimClock
from penstock.sim.disk import SimDisk
from penstock.sim.loop import SimLoop, run
from penstock.sim.random import SimRandom
from penstock.sim.store import SimEtcd, SimStore
from penstock.sim.workers import SimWorkers
from penstock.wire.codec import reader, writer
from penstock.wire.messages import RESPONSES
from penstock.wire.records import Record, encode, read_header

NODE = NodeId(1)
T = TypeVar("T")


@dataclass
class Rights:
    """Everything is allowed but what a test denies."""

    denied: set[tuple[Operation, ResourceType, str]] = field(default_factory=set)

    def allows(
        self, principal: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return (operation, resource, name) not in self.denied

    def deny(self, operation: Operation, resource: ResourceType, name: str) -> None:
        self.denied.add((operation, resource, name))


class Client:
    """The connection behind a call."""

    principal = "User:tester"
    peer = "127.0.0.1:1"

    def settle(self, call: Call) -> None:
        raise AssertionError("these handlers answer by returning")


class Node:
    """A context whose image and partitions are kept up to date by the real follower."""

    ctx: Context
    rights: Rights

    async def start(self, loop: SimLoop, configs: dict[str, str]) -> "Node":
        self.etcd = SimEtcd(loop.seed)
        self.store = SimStore(self.etcd)
        broker = keys.BrokerRecord(NODE, "localhost", 9092, rack="r1")
        await self.store.commit(
            [],
            [
                Put(keys.CLUSTER_ID, keys.encode(keys.ClusterRecord("the-cluster"))),
                Put(keys.broker_key(NODE), keys.encode(broker)),
            ],
        )
        self.disk, self.workers = SimDisk(loop.seed), SimWorkers(loop.seed)
        self.disk.mkdir("data")
        self.disk.sync_dir("")
        self.configs = BrokerConfigs(configs)
        self.failures: list[OSError] = []
        clock = SimClock(loop)
        flusher = Flusher(self.disk, self.workers, self.failures.append)
        partitions = Partitions(
            NODE, self.disk, self.workers, clock, self.store, flusher, self.configs, "data/logs"
        )
        follower = Follower(self.store)
        await partitions.start(await follower.start(), None)
        follower.on_change(self._configure)
        follower.on_change(partitions.follow)
        self._tasks = [
            asyncio.ensure_future(follower.run()),
            asyncio.ensure_future(partitions.run()),
        ]
        self.rights = Rights()
        self.ctx = Context(
            node_id=NODE,
            configs=self.configs,
            partitions=partitions,
            follower=follower,
            store=self.store,
            disk=self.disk,
            clock=clock,
            random=SimRandom(loop.seed),
            workers=self.workers,
            producer_ids=ProducerIds(self.store),
            metrics=Metrics(),
            data_dir="data",
            authorizer=self.rights,
        )
        return self

    def _configure(self, before: Image, after: Image) -> None:
        self.configs.follow(after.cluster_configs, after.broker_configs.get(NODE, {}))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def put(self, key: str, record: Any) -> None:
        """Changes the store behind the handlers' back."""
        revision = await self.store.commit([], [Put(key, keys.encode(record))])
        assert revision is not None
        await self.ctx.reached(revision)

    async def ask(self, handler: Callable[..., Any], version: int, request: Any) -> Any:
        """The handler's answer to `request`, both as the wire would carry them."""
        kind = type(request)
        response_kind = RESPONSES[kind.WIRE.key]
        route = Route(
            kind,
            response_kind,
            kind.WIRE.versions,
            handler,
            Needs(ResourceType.TOPIC, Operation.DESCRIBE),
        )
        loop = asyncio.get_running_loop()
        prepared = Prepared(
            route,
            version,
            reader(kind, version),
            writer(response_kind, version),
            self.ctx.metrics.route(route.name),
        )
        call = Call(
            Client(), prepared, 1, "tester", version, 0, lambda call, response: [], loop.time
        )
        answer = handler(self.ctx, call, through_wire(request, version))
        if inspect.isawaitable(answer):
            answer = await answer
        assert type(answer) is response_kind
        return through_wire(answer, version)

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


def through_wire(message: T, version: int) -> T:
    kind: Any = type(message)
    parts: list[Any] = []
    writer(kind, version)(message, parts)
    view = memoryview(b"".join(bytes(part) for part in parts))
    read, position = reader(kind, version)(view, 0, len(view))
    assert position == len(view)
    result: T = read
    return result


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
