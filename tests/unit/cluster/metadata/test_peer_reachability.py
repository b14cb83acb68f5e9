"""Reachability of a node: its counts, its report in the store, and the conclusion of both sides."""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.base.ports import Put
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.image import Image
from penstock.cluster.metadata.membership import ClusterMembership
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.peer_reachability import (
    PeerReachability,
    broken_links_of,
    silence_seconds,
)
from penstock.cluster.metadata.store_keys import BrokerRecord, ReachRecord
from simulation.loop import SimLoop, run
from simulation.random import SimRandom
from simulation.store import SimEtcd, SimStore
from tests.run_with import run_with, with_seeds

Test = Callable[["World"], Awaitable[None]]
UP = {node: BrokerRecord(node, "h", node, epoch=10 + node) for node in (1, 2, 3)}
ROUND_TRIP_S = 0.75


class World:
    """Node 1 and simulated answers of its peers; tests write the peers' reports."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.etcd = SimEtcd(loop.seed)
        self.store = SimStore(self.etcd)
        self.watcher = MetadataWatcher(self.store)
        configs = BrokerConfigs()
        self.membership = ClusterMembership(1, self.store, configs, is_leased=True)
        self.watcher.on_change(self.membership.follow)
        self.given_up: list[int] = []
        random = SimRandom(loop.seed)
        self.reach = PeerReachability(
            self.store, self.watcher, self.membership, configs, random, self.given_up.append
        )
        self.silence_s = silence_seconds(configs)
        self.silent: set[int] = set()
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self.watcher.start()
        self._begin(self.watcher.run())
        await self.membership.register(BrokerRecord(1, "h", 1, directory_id="d"))
        self._begin(self.membership.run())
        self._begin(self.reach.run())
        self._begin(self._answer())
        for node in (2, 3):
            await self.put(store_keys.broker_key(node), store_keys.encode(UP[node]))

    def _begin(self, work: Awaitable[None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def _answer(self) -> None:
        while True:
            for node, broker in self.watcher.image.brokers.items():
                if node not in self.silent:
                    self.reach.answered(node, broker.epoch)
            await asyncio.sleep(ROUND_TRIP_S)

    async def put(self, key: str, value: bytes) -> None:
        await self.store.commit([], [Put(key, value)])

    async def image(self) -> Image:
        """The truth, not what a node believes."""
        return await MetadataWatcher(SimStore(self.etcd)).start()

    async def told(self) -> dict[int, int]:
        found = (await self.image()).reach.get(1)
        return found.unreached if found is not None else {}

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.etcd.close()


def in_world(test: Test, seed: int = 0) -> None:
    async def main(loop: SimLoop) -> None:
        world = World(loop)
        try:
            await world.start()
            await test(world)
        finally:
            await world.close()

    run(main, seed=seed)


@run_with(in_world)
async def test_reachable_peers_cause_no_writes(world: World) -> None:
    await asyncio.sleep(1)
    revision = world.etcd.space.revision
    await asyncio.sleep(100)
    assert world.etcd.space.revision == revision
    assert world.reach.unreachable() == frozenset()


@run_with(in_world)
async def test_silent_peer_is_reported_once_and_withdrawn_later(world: World) -> None:
    await asyncio.sleep(3)
    world.silent.add(2)
    await asyncio.sleep(world.silence_s - ROUND_TRIP_S)
    assert await world.told() == {}
    await asyncio.sleep(2 * ROUND_TRIP_S)
    assert await world.told() == {2: 12}
    assert world.given_up == [2]
    assert world.reach.unreachable() == {2}
    revision = world.etcd.space.revision
    await asyncio.sleep(60)
    assert world.etcd.space.revision == revision, "it is written when it changes"
    world.silent.clear()
    await asyncio.sleep(ROUND_TRIP_S)
    assert await world.told() == {2: 12}, "one answer is not enough"
    await asyncio.sleep(2)
    assert await world.told() == {}
    assert world.reach.unreachable() == frozenset()


@run_with(in_world)
async def test_silent_peer_is_unreachable_before_it_is_reported(world: World) -> None:
    await asyncio.sleep(5)
    assert world.reach.is_reachable(2)
    assert not world.reach.is_reachable(4), "no such node"
    world.silent.add(2)
    await asyncio.sleep(world.silence_s / 2)
    assert not world.reach.is_reachable(2)
    assert world.reach.is_reachable(3)
    assert await world.told() == {}


@run_with(in_world)
async def test_intermittent_answers_do_not_flap(world: World) -> None:
    world.silent.add(2)
    await asyncio.sleep(5)
    assert await world.told() == {2: 12}
    revision = world.etcd.space.revision
    for _ in range(10):
        world.reach.answered(2, 12)
        await asyncio.sleep(world.silence_s - 1)
    assert world.etcd.space.revision == revision
    assert await world.told() == {2: 12}


@run_with(in_world)
async def test_own_pause_is_not_taken_for_silence_of_peers(world: World) -> None:
    await asyncio.sleep(5)
    # One tick, however long it took: what has come meanwhile is read before the next.
    world.reach.tick()
    assert world.reach.unreachable() == frozenset()
    for _ in range(7):
        world.reach.tick()
    assert world.reach.unreachable() == frozenset()


@run_with(in_world)
async def test_new_registration_starts_over_and_ignores_answers_of_the_previous(
    world: World,
) -> None:
    world.silent.add(2)
    await asyncio.sleep(5)
    assert world.reach.unreachable() == {2}
    again = store_keys.encode(BrokerRecord(2, "h", 2, epoch=99))
    await world.put(store_keys.broker_key(2), again)
    await asyncio.sleep(1)
    assert world.reach.unreachable() == frozenset()
    assert await world.told() == {}
    for _ in range(10):
        world.reach.answered(2, 12)
        await asyncio.sleep(0.5)
    assert await world.told() == {2: 99}


@run_with(with_seeds, 5, in_world)
async def test_report_is_written_again_after_the_store_lost_it(world: World) -> None:
    world.silent.add(2)
    world.etcd.unknown_ratio = 0.7
    await asyncio.sleep(40)
    world.etcd.unknown_ratio = 0.0
    await asyncio.sleep(10)
    assert await world.told() == {2: 12}
    world.etcd.expire(world.membership.lease)
    await asyncio.sleep(3)
    report = (await world.image()).reach[1]
    assert (report.broker_epoch, report.unreached) == (world.membership.epoch, {2: 12})


@run_with(in_world)
async def test_report_ends_with_the_lease_of_its_author(world: World) -> None:
    world.silent.add(2)
    await asyncio.sleep(5)
    assert await world.told() == {2: 12}
    world.tasks[1].cancel()  # Its lease is not renewed any more.
    world.tasks[2].cancel()
    await asyncio.sleep(10)
    assert (await world.image()).reach == {}


@run_with(in_world)
async def test_report_of_the_other_side_counts(world: World) -> None:
    report = ReachRecord(13, {1: world.membership.epoch})
    await world.put(store_keys.reach_key(3), store_keys.encode(report))
    await asyncio.sleep(0.1)
    assert world.reach.unreachable() == {3}


def test_broken_link_needs_a_report_between_current_registrations() -> None:
    assert broken_links_of({}, UP) == {}
    one = {1: ReachRecord(11, {2: 12})}
    assert broken_links_of(one, UP) == {1: {2}, 2: {1}}
    both = {**one, 2: ReachRecord(12, {1: 11, 3: 13})}
    assert broken_links_of(both, UP) == {1: {2}, 2: {1, 3}, 3: {2}}
    assert broken_links_of({1: ReachRecord(10, {2: 12})}, UP) == {}, "of a past life of its author"
    assert broken_links_of({1: ReachRecord(11, {2: 7})}, UP) == {}, "of a past life of the other"
    assert broken_links_of({1: ReachRecord(11, {9: 1, 1: 11})}, UP) == {}, "unknown, and itself"
    assert broken_links_of({9: ReachRecord(11, {2: 12})}, UP) == {}, "by no registered broker"
    assert broken_links_of(one, {**UP, 2: BrokerRecord(2, "h", 2, epoch=50)}) == {}
