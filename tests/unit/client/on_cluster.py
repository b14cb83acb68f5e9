"""A real node in simulated time, and clients of it, for what a client does with a whole broker."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import ParamSpec, TypeVar

from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.consumer.consumer import Consumer, ConsumerConfig
from penstock.client.consumer.fetched import READ_COMMITTED, FetchedRecord
from penstock.client.list_offsets import partitions_of, resolve
from penstock.client.offset_syntax import END, START, OffsetRange
from penstock.client.producer.producer import Producer, ProducerConfig
from penstock.wire.compression import Codec
from simulation.clock import SimClock
from simulation.cluster import SimCluster
from simulation.loop import SimLoop
from simulation.random import SimRandom
from simulation.workers import SimWorkers

OVERRIDES = {
    name: "1"
    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    for name in (f"{topic}.replication.factor", f"{topic}.num.partitions")
}
Headers = Sequence[tuple[str, bytes | None]]
P = ParamSpec("P")
T = TypeVar("T")


class WatchedWorkers(SimWorkers):
    """Workers that remember whose work they did, by the modules it is of."""

    def __init__(self) -> None:
        super().__init__()
        self.modules: list[str] = []

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[T]":
        self.modules.append(work.__module__)
        return super().run(work, *args, **kwargs)


class Desk:
    """A client with a connection."""

    def __init__(self, nodes: SimCluster, cluster: Cluster, clock: SimClock) -> None:
        self.nodes = nodes
        self.cluster = cluster
        self.clock = clock
        self.admin = Admin(cluster)

    async def produce(
        self,
        topic: str,
        values: Sequence[bytes],
        *,
        partition: int = 0,
        headers: Headers = (),
        key: bytes | None = None,
        codec: Codec = Codec.NONE,
    ) -> None:
        config = ProducerConfig(codec=codec)
        async with Producer(self.clock, SimRandom(2), self.cluster, config) as producer:
            for value in values:
                await producer.send(topic, value, key, partition=partition, headers=headers)

    async def read(self, topic: str) -> list[FetchedRecord]:
        """Committed records, in the order of each partition."""
        places = await partitions_of(self.cluster, topic)
        spans = await resolve(
            self.cluster,
            places,
            OffsetRange(START, END),
            isolation_level=READ_COMMITTED,
            must_end=True,
        )
        found: list[FetchedRecord] = []
        async with Consumer(self.cluster, ConsumerConfig(isolation_level=READ_COMMITTED)) as reader:
            reader.assign({where: span.start for where, span in spans.items()})
            while any(reader.positions[where] < (spans[where].end or 0) for where in places):
                found += await reader.poll()
        return found


def on_cluster(scene: Callable[[Desk], Awaitable[None]], **overrides: str) -> None:
    async def main() -> None:
        own = {name.replace("_", "."): value for name, value in overrides.items()}
        nodes = SimCluster(loop, 1, overrides=OVERRIDES | own)
        await nodes.start()
        async with Cluster(SimRandom(1), nodes.addresses) as cluster:
            await scene(Desk(nodes, cluster, SimClock(loop)))
        nodes.close()

    loop = SimLoop(1, time_max=3_600)
    loop.run(main())
