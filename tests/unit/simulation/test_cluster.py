"""`SimCluster`: starts, stops and failures of real nodes on simulated machines."""

import asyncio
import errno
from collections.abc import Awaitable, Callable

import pytest

from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.producer.producer import Producer
from simulation.cluster import SimCluster
from simulation.disk import Fault
from simulation.loop import SimLoop
from simulation.random import SimRandom
from tests.run_with import run_with


def with_cluster(scenario: Callable[[SimCluster], Awaitable[None]]) -> None:
    async def main() -> None:
        cluster = SimCluster(loop, 1)
        await cluster.start()
        try:
            await scenario(cluster)
        finally:
            cluster.close()

    loop = SimLoop(1, time_max=600)
    loop.run(main())


async def topics_of(cluster: SimCluster) -> list[str]:
    async with Cluster(SimRandom(1), cluster.addresses) as client:
        await client.refresh()
        return sorted(client.metadata.topics)


async def create_topic(cluster: SimCluster, name: str) -> None:
    async with Cluster(SimRandom(1), cluster.addresses) as client:
        await Admin(client).create_topic(name, 1, 1)


@pytest.mark.parametrize("how", ["power cut", "kill", "stop"])
@run_with(with_cluster)
async def test_node_restarts_with_its_topics(cluster: SimCluster, *, how: str) -> None:
    host = cluster.hosts[1]
    await create_topic(cluster, "t")
    if how == "power cut":
        host.cut_power()
    elif how == "kill":
        host.kill()
    else:
        await host.stop()
    assert not host.is_up
    assert cluster.nodes() == []
    with pytest.raises(ConnectionError):
        await topics_of(cluster)
    assert await host.start()
    assert "t" in await topics_of(cluster)


@run_with(with_cluster)
async def test_power_is_cut_at_a_chosen_disk_operation(cluster: SimCluster) -> None:
    host = cluster.hosts[1]
    host.kill()
    assert not await host.start(cut_after=1)
    assert host.is_powered_off
    assert await host.start()


@run_with(with_cluster)
async def test_node_with_a_failing_disk_stops(cluster: SimCluster) -> None:
    host = cluster.hosts[1]
    await create_topic(cluster, "t")
    host.disk.inject(Fault("sync", errno.EIO))
    async with Cluster(SimRandom(1), cluster.addresses) as client:
        producer = Producer(host.clock, SimRandom(1), client)
        await producer.send("t", b"value")
        await asyncio.wait_for(host.down(), 10)
        await producer.close(drain=False)
    assert host.failed is not None
    assert await host.start()


@run_with(with_cluster)
async def test_paused_node_answers_after_resume(cluster: SimCluster) -> None:
    host, loop = cluster.hosts[1], cluster.loop
    await create_topic(cluster, "t")
    host.pause()
    loop.call_later(5.0, host.resume)
    began_s = loop.time()
    assert "t" in await topics_of(cluster)
    assert loop.time() - began_s > 4.9
    assert host.is_up
