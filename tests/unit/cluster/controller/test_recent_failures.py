"""Waiting for what comes of a loss: until the image shows it, and never for long."""

import asyncio
from collections.abc import Awaitable, Callable, Collection

from penstock.base.ports import Delete, Put
from penstock.cluster.controller.recent_failures import (
    DETECTION_SECONDS,
    WAIT_SECONDS_MAX,
    RecentFailures,
)
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.image import Image
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.store_keys import BrokerRecord
from simulation.loop import SimLoop, run
from simulation.store import SimEtcd, SimStore
from tests.run_with import run_with

Test = Callable[["World"], Awaitable[None]]


class World:
    """Three registered nodes; a request is affected while node 2 is registered."""

    def __init__(self, loop: SimLoop) -> None:
        self.store = SimStore(SimEtcd(loop.seed))
        self.watcher = MetadataWatcher(self.store)
        self.failures = RecentFailures(self.watcher)

    async def register(self, node_id: int) -> None:
        record = BrokerRecord(node_id, f"node-{node_id}", 9092, 1)
        await self.store.commit(
            [], [Put(store_keys.broker_key(node_id), store_keys.encode(record))]
        )

    async def ask(self) -> float:
        """Seconds until the request is answered."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await self.failures.wait_until_decided(self._names_2)
        return loop.time() - began_s

    def _names_2(self, image: Image, lost: Collection[int]) -> bool:
        return 2 in lost and image.brokers[2].port == 9092


def in_world(test: Test) -> None:
    async def main(loop: SimLoop) -> None:
        world = World(loop)
        for node_id in (1, 2, 3):
            await world.register(node_id)
        await world.watcher.start()
        following = asyncio.ensure_future(world.watcher.run())
        try:
            await test(world)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    run(main)


@run_with(in_world)
async def test_request_does_not_wait_while_all_nodes_are_up(world: World) -> None:
    assert await world.ask() == 0


@run_with(in_world)
async def test_request_of_other_partitions_does_not_wait(world: World) -> None:
    world.failures.record_failure(3)
    assert await world.ask() == 0


@run_with(in_world)
async def test_affected_request_waits_until_the_image_shows_a_new_leader(world: World) -> None:
    world.failures.record_failure(2)
    asking = asyncio.ensure_future(world.ask())
    await asyncio.sleep(0.1)
    assert not asking.done()
    await world.register(3)  # News, but not what is waited for.
    await asyncio.sleep(0.1)
    assert not asking.done()
    record = BrokerRecord(2, "node-2", 9999, 2)
    await world.store.commit([], [Put(store_keys.broker_key(2), store_keys.encode(record))])
    assert 0.2 <= await asking < 0.5


@run_with(in_world)
async def test_affected_request_waits_at_most_the_limit_once_per_failure(world: World) -> None:
    world.failures.record_failure(2)
    assert abs(await world.ask() - WAIT_SECONDS_MAX) < 0.01
    assert await world.ask() == 0
    world.failures.record_failure(2)  # It is still the same loss.
    assert await world.ask() == 0


@run_with(in_world)
async def test_recovered_node_ends_the_wait(world: World) -> None:
    world.failures.record_failure(2)
    asking = asyncio.ensure_future(world.ask())
    await asyncio.sleep(0.1)
    world.failures.record_recovery(2)
    assert abs(await asking - 0.1) < 0.01
    world.failures.record_failure(2)
    assert await world.ask() > 0.9


@run_with(in_world)
async def test_ended_registration_is_a_failure_and_a_new_one_is_not(world: World) -> None:
    concerned: list[int] = []

    def names_3(image: Image, lost: Collection[int]) -> bool:
        concerned.extend(lost)
        return 3 in lost

    await world.store.commit([], [Delete(store_keys.broker_key(3))])
    await asyncio.sleep(0.1)
    asking = asyncio.ensure_future(world.failures.wait_until_decided(names_3))
    await asyncio.sleep(0.1)
    assert not asking.done()
    await world.register(3)
    await asking
    assert set(concerned) == {3}


@run_with(in_world)
async def test_failure_detection_waits_in_a_cluster_and_not_on_a_single_node(world: World) -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await world.failures.wait_for_detection()
    assert loop.time() - began_s >= DETECTION_SECONDS
    alone = RecentFailures(MetadataWatcher(world.store))
    began_s = loop.time()
    await alone.wait_for_detection()
    assert loop.time() == began_s
