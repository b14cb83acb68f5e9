"""Application tests against real nodes in a simulated world: virtual time, seeded, no sockets."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from penstock.app.client import Client
from penstock.app.message import Message
from simulation.clock import SimClock
from simulation.cluster import SimCluster
from simulation.loop import SimLoop, run
from simulation.random import SimRandom

OVERRIDES = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "4000",
    "group.share.max.delivery.count.limit": "20",
}


class Sim:
    """Running simulated cluster, and a factory of clients for it."""

    def __init__(self, loop: SimLoop, cluster: SimCluster, seed: int) -> None:
        self.loop = loop
        self.cluster = cluster
        self.clock = SimClock(loop)
        self._seed = seed

    @property
    def brokers(self) -> str:
        return ",".join(str(address) for address in self.cluster.addresses)

    def options(self) -> dict[str, Any]:
        """Client options for the simulated world: clock and random."""
        self._seed += 1
        return {"clock": self.clock, "random": SimRandom(self._seed)}

    def client(self, **options: Any) -> Client:
        return Client(self.brokers, **{**self.options(), **options})


def on_broker(
    test: Callable[[Sim], Awaitable[None]],
    *,
    nodes: int = 1,
    overrides: Mapping[str, str] | None = None,
    seed: int = 1,
    time_max: float = 600.0,
) -> None:
    """Runs a test against a new cluster."""

    async def main(loop: SimLoop) -> None:
        ids = tuple(range(1, nodes + 1))
        cluster = SimCluster(loop, seed, ids, {**OVERRIDES, **(overrides or {})})
        await cluster.start()
        await test(Sim(loop, cluster, seed))
        await cluster.stop()
        cluster.close()

    run(main, seed=seed, time_max=time_max)


async def take(client: Client, topic: str, group: str, count: int) -> list[Message]:
    """Receives `count` messages of a queue without settling them."""
    found: list[Message] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await client.poll(topic, group, max=count - len(found), wait=5)
    return found
