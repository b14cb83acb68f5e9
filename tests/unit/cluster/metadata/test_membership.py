"""A node's place: taken once, renewed in time, given up when the store says so."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from msgspec.structs import replace

from penstock.base.ports import Delete, Put
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.image import EMPTY, load
from penstock.cluster.metadata.membership import (
    ClusterMembership,
    NodeIdTaken,
    leads_what_others_could,
)
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.store_keys import BrokerRecord, PartitionRecord, TopicRecord
from simulation.loop import SimLoop, run
from simulation.store import SimEtcd, SimStore
from tests.run_with import run_with

SESSION_S = 6.0
RECORD = BrokerRecord(1, "node-1", 9092, directory_id="mine", pid=11)
Test = Callable[["World"], Awaitable[None]]


class World:
    """One node's membership on a simulated etcd, followed and renewed as in a node."""

    def __init__(self, loop: SimLoop, *, is_leased: bool = True) -> None:
        self.loop = loop
        self.etcd = SimEtcd(loop.seed)
        self.store = SimStore(self.etcd)
        self.membership = ClusterMembership(1, self.store, BrokerConfigs(), is_leased=is_leased)
        self.watcher = MetadataWatcher(self.store)
        self.watcher.on_change(self.membership.follow)
        self.fenced = 0
        self.membership.on_fenced(self._count)
        self.said: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    def _count(self) -> None:
        self.fenced += 1

    async def join(self) -> None:
        # A cluster's id is always there before its first broker.
        await self.put(store_keys.CLUSTER_ID, store_keys.ClusterRecord("c"))
        await self.membership.register(RECORD)
        await self.watcher.start()
        self.tasks = [
            asyncio.ensure_future(self.watcher.run()),
            asyncio.ensure_future(self.membership.run()),
        ]

    async def put(self, key: str, record: store_keys._Record) -> None:
        assert await self.store.commit([], [Put(key, store_keys.encode(record))]) is not None

    async def registered(self) -> BrokerRecord | None:
        entry = self.etcd.space.get(store_keys.broker_key(1))
        return None if entry is None else store_keys.decode(BrokerRecord, entry.value)

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
            with suppress(asyncio.CancelledError, NodeIdTaken):
                await task
        self.etcd.close()


def in_world(test: Test, *, is_leased: bool = True) -> None:
    async def main(loop: SimLoop) -> None:
        world = World(loop, is_leased=is_leased)
        try:
            await test(world)
        finally:
            await world.end()

    run(main)


# -- joining ----------------------------------------------------------------------------------


@run_with(in_world)
async def test_every_registration_has_a_higher_epoch(world: World) -> None:
    await world.join()
    epochs = [world.membership.epoch]
    for _ in range(3):
        again = ClusterMembership(1, SimStore(world.etcd), BrokerConfigs(), is_leased=True)
        await again.register(RECORD)
        epochs.append(again.epoch)
    assert epochs == sorted(set(epochs))
    found = await world.registered()
    assert found is not None
    assert found.epoch == epochs[-1]


@run_with(in_world)
async def test_registration_of_another_directory_is_never_overwritten(world: World) -> None:
    await world.join()
    other = ClusterMembership(1, SimStore(world.etcd), BrokerConfigs(), is_leased=True)
    with pytest.raises(NodeIdTaken, match=r"node id 1 is taken: process 11 at node-1:9092"):
        await other.register(replace(RECORD, directory_id="another"))
    with pytest.raises(NodeIdTaken):
        await other.vacate("another")
    assert await world.registered() == replace(RECORD, epoch=world.membership.epoch)


@run_with(in_world)
async def test_live_owner_of_the_node_id_is_waited_for_and_named(world: World) -> None:
    await world.join()
    other = ClusterMembership(1, SimStore(world.etcd), BrokerConfigs(), is_leased=True)
    began_s = world.loop.time()
    with pytest.raises(NodeIdTaken):
        await other.await_vacancy("another", world.said.append)
    assert world.loop.time() - began_s >= SESSION_S
    assert len(world.said) == 1
    assert "process 11 at node-1:9092" in world.said[0]


@run_with(in_world)
async def test_dead_owner_of_the_node_id_is_gone_with_its_lease(world: World) -> None:
    await world.join()
    world.tasks[1].cancel()  # Renews no more.
    other = ClusterMembership(1, SimStore(world.etcd), BrokerConfigs(), is_leased=True)
    await other.await_vacancy("another", world.said.append)
    await other.register(replace(RECORD, directory_id="another"))
    assert other.epoch > world.membership.epoch


@run_with(in_world)
async def test_own_previous_registration_is_replaced_without_waiting(world: World) -> None:
    await world.join()
    again = ClusterMembership(1, SimStore(world.etcd), BrokerConfigs(), is_leased=True)
    began_s = world.loop.time()
    await again.await_vacancy("mine", world.said.append)
    await again.vacate("mine")
    assert world.loop.time() - began_s < 1
    assert await world.registered() is None
    assert world.said == []


@run_with(in_world)
async def test_node_id_with_the_same_prefix_is_another_node(world: World) -> None:
    await world.put(store_keys.broker_key(10), replace(RECORD, node_id=10, directory_id="ten"))
    await world.join()
    assert (await world.registered()) is not None


@pytest.mark.parametrize("seed", range(20))
@run_with(run, fixtures=["seed"])
async def test_registration_is_retried_until_the_store_has_it(loop: SimLoop) -> None:
    world = World(loop)
    await world.put(store_keys.CLUSTER_ID, store_keys.ClusterRecord("c"))
    world.etcd.unknown_ratio = 0.6
    world.etcd.timeout_s = 1.0
    await world.membership.register(RECORD)
    world.etcd.unknown_ratio = 0.0
    found = await world.registered()
    assert found is not None
    # Something of an earlier attempt may still land, but not over the one that was confirmed.
    await asyncio.sleep(20)
    found = await world.registered()
    assert found is None or found.epoch == world.membership.epoch
    await world.end()


# -- staying ----------------------------------------------------------------------------------


@run_with(in_world)
async def test_node_that_renews_stays_registered_and_unfenced(world: World) -> None:
    await world.join()
    epoch = world.membership.epoch
    for _ in range(100):
        await asyncio.sleep(1)
        assert not world.membership.is_fenced
    assert (world.membership.epoch, world.fenced) == (epoch, 0)


@run_with(in_world)
async def test_validity_ends_before_the_lease_in_the_store(world: World) -> None:
    world.etcd.delay_s = (0.1, 0.4)
    await world.join()
    for _ in range(30):
        await asyncio.sleep(0.7)
        lease = world.etcd.space.leases[world.membership.lease]
        assert world.membership.valid_until <= lease.deadline_s


@run_with(in_world)
async def test_node_that_cannot_renew_fences_itself_and_returns_later(
    world: World,
) -> None:
    await world.join()
    first = world.membership.epoch
    await asyncio.sleep(1)
    world.etcd.down = True
    await asyncio.sleep(SESSION_S - 1.5)
    assert not world.membership.is_fenced
    await asyncio.sleep(2)
    assert world.membership.is_fenced
    assert world.fenced == 1
    await asyncio.sleep(30)
    assert world.membership.is_fenced
    world.etcd.down = False
    await asyncio.sleep(10)
    assert not world.membership.is_fenced
    assert world.membership.epoch > first
    found = await world.registered()
    assert found is not None
    assert found.epoch == world.membership.epoch


@run_with(in_world)
async def test_short_store_outage_changes_nothing(world: World) -> None:
    await world.join()
    first = world.membership.epoch
    for _ in range(5):
        world.etcd.down = True
        await asyncio.sleep(3)
        world.etcd.down = False
        await asyncio.sleep(5)
    assert (world.membership.epoch, world.fenced) == (first, 0)


@run_with(in_world)
async def test_deleted_registration_fences_at_once_and_is_renewed(world: World) -> None:
    await world.join()
    first = world.membership.epoch
    states: list[bool] = []
    world.membership.on_fenced(lambda: states.append(world.membership.is_fenced))
    await world.store.commit([], [Delete(store_keys.broker_key(1))])
    await asyncio.sleep(1)
    assert states == [True]
    assert not world.membership.is_fenced
    assert world.membership.epoch > first
    assert (await world.registered()) is not None


@run_with(in_world)
async def test_lease_that_ended_early_is_noticed_at_the_next_renewal(world: World) -> None:
    await world.join()
    first = world.membership.epoch
    world.tasks[0].cancel()  # The watch says nothing.
    world.etcd.expire(world.membership.lease)
    await asyncio.sleep(3)
    assert world.membership.epoch > first
    assert world.fenced == 1


@run_with(in_world)
async def test_node_whose_registration_is_taken_over_ends(world: World) -> None:
    await world.join()
    copy = ClusterMembership(1, SimStore(world.etcd), BrokerConfigs(), is_leased=True)
    await copy.register(replace(RECORD, pid=99))
    with pytest.raises(NodeIdTaken, match="process 99"):
        await world.tasks[1]
    assert world.membership.is_fenced
    found = await world.registered()
    assert found is not None
    assert found.pid == 99


@run_with(in_world, is_leased=False)
async def test_embedded_store_registration_has_no_lease_and_no_expiry(world: World) -> None:
    assert world.membership.is_fenced
    await world.join()
    await asyncio.sleep(100)
    assert world.membership.valid_until == float("inf")
    assert world.membership.lease == 0
    assert world.etcd.space.leases == {}
    await world.membership.drain()
    await world.membership.leave()
    found = await world.registered()
    assert found is not None
    assert not found.is_draining


# -- leaving ----------------------------------------------------------------------------------


@run_with(in_world)
async def test_draining_is_registered_and_survives_a_new_registration(world: World) -> None:
    await world.join()
    await world.membership.drain()
    found = await world.registered()
    assert found is not None
    assert (found.is_draining, found.epoch) == (True, world.membership.epoch)
    await world.store.commit([], [Delete(store_keys.broker_key(1))])
    await asyncio.sleep(1)
    found = await world.registered()
    assert found is not None
    assert found.is_draining


@run_with(in_world)
async def test_leaving_removes_all_keys_of_the_lease_for_good(
    world: World,
) -> None:
    await world.join()
    controller_key = Put(store_keys.CONTROLLER, b'{"node_id":1}', world.membership.lease)
    await world.store.commit([], [controller_key])
    await world.membership.leave()
    assert world.membership.is_fenced
    await asyncio.sleep(30)
    assert await world.registered() is None
    assert world.etcd.space.get(store_keys.CONTROLLER) is None


@run_with(in_world)
async def test_store_outage_does_not_delay_leaving(world: World) -> None:
    await world.join()
    world.etcd.down = True
    began_s = world.loop.time()
    await world.membership.drain()
    await world.membership.leave()
    assert world.loop.time() - began_s <= 5


@pytest.mark.parametrize(
    ("isr", "draining", "expected"),
    [
        ((1, 2, 3), (), True),
        ((1,), (), False),
        ((1, 2), (2,), False),
        ((1, 2, 3), (2,), True),
        ((1, 4), (), False),
    ],
    ids=["others", "alone", "the other drains", "one of two drains", "the other is down"],
)
def test_leadership_left_to_hand_over_is_recognized(
    isr: tuple[int, ...], draining: tuple[int, ...], expected: bool
) -> None:
    topic = TopicRecord("AAAAAAAAAAAAAAAAAAAAAQ", (PartitionRecord((1, 2, 3, 4), 1, isr),))
    puts = [Put("/topics/t", store_keys.encode(topic))]
    for node_id in (1, 2, 3):
        record = BrokerRecord(node_id, "h", 1, is_draining=node_id in draining)
        puts.append(Put(store_keys.broker_key(node_id), store_keys.encode(record)))

    async def main(loop: SimLoop) -> None:
        store = SimStore(SimEtcd(loop.seed))
        await store.commit([], puts)
        image = load(*await store.range(store_keys.ALL))
        assert leads_what_others_could(image, 1) is expected

    run(main)
    assert not leads_what_others_could(EMPTY, 1)
