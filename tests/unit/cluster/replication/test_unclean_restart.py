"""A node that returns uncleanly leaves ISR and ELR before it registers."""

import asyncio

import pytest
from msgspec.structs import replace

from penstock.base.ids import TopicId, show_topic_id
from penstock.base.ports import Put
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.controller.placement import initial_record
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.image import load
from penstock.cluster.metadata.store_keys import BrokerRecord, PartitionRecord, TopicRecord
from penstock.cluster.replication import unclean_restart
from simulation.loop import SimLoop, run
from simulation.store import SimEtcd, SimStore
from tests.run_with import run_with


async def create(store: SimStore, name: str, *born: PartitionRecord, **configs: str) -> None:
    topic_id = TopicId(name[:1].encode() * 16)
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    record = TopicRecord(show_topic_id(topic_id), born, dotted)
    await store.commit([], [Put(store_keys.topic_key(name), store_keys.encode(record))])


async def register(store: SimStore, *nodes: int) -> None:
    for node in nodes:
        broker = store_keys.encode(BrokerRecord(node, "h", node))
        await store.commit([], [Put(store_keys.broker_key(node), broker)])


async def states(store: SimStore, name: str) -> list[PartitionRecord]:
    return list(load(*await store.range(store_keys.ALL)).topics[name].partitions)


@run_with(run)
async def test_withdrawal_leaves_shared_partitions_and_keeps_sole_copies(loop: SimLoop) -> None:
    store = SimStore(SimEtcd(loop.seed))
    await register(store, 2, 3)
    await create(store, "shared", *[initial_record((1, 2, 3))] * 300)
    await create(store, "own", initial_record((1,)))
    await create(store, "cached", initial_record((1,)), flush_policy="page-cache")
    await create(store, "foreign", initial_record((2, 3)))
    assert await unclean_restart.withdraw_unclean(store, BrokerConfigs(), 1) == 301
    for record in await states(store, "shared"):
        assert (record.leader, record.isr, record.leader_epoch) == (2, (2, 3), 1)
    assert await states(store, "own") == [initial_record((1,))]
    [cached] = await states(store, "cached")
    assert (cached.leader, cached.isr, cached.last_known_elr) == (-1, (), (1,))
    assert await states(store, "foreign") == [initial_record((2, 3))]
    # Once is enough.
    assert await unclean_restart.withdraw_unclean(store, BrokerConfigs(), 1) == 0


@run_with(run)
async def test_withdrawal_of_a_new_directory_keeps_nothing(loop: SimLoop) -> None:
    store = SimStore(SimEtcd(loop.seed))
    await create(store, "own", initial_record((1,)))
    assert await unclean_restart.withdraw_unclean(store, BrokerConfigs(), 1, is_empty=True) == 1
    [record] = await states(store, "own")
    assert (record.leader, record.isr, record.elr, record.last_known_elr) == (-1, (), (), ())


@pytest.mark.parametrize("seed", range(5))
@run_with(run, fixtures=["seed"])
async def test_withdrawal_is_retried_until_the_store_has_applied_it(loop: SimLoop) -> None:
    etcd = SimEtcd(loop.seed)
    store = SimStore(etcd)
    await register(store, 2, 3)
    await create(store, "shared", *[initial_record((1, 2, 3))] * 150)
    etcd.unknown_ratio, etcd.timeout_s = 0.5, 0.5
    etcd.down = True
    loop.call_later(20, setattr, etcd, "down", False)
    await unclean_restart.withdraw_unclean(store, BrokerConfigs(), 1)
    assert loop.time() >= 20
    etcd.unknown_ratio = 0.0
    assert all(1 not in record.isr for record in await states(store, "shared"))
    await asyncio.sleep(20)
    assert all(1 not in record.isr for record in await states(store, "shared"))


@run_with(run)
async def test_lost_replica_is_withdrawn_where_another_exists(loop: SimLoop) -> None:
    store = SimStore(SimEtcd(loop.seed))
    await create(store, "own", initial_record((1,)))
    await create(store, "shared", initial_record((1, 2, 3)), initial_record((2, 1, 3)))
    lost = [("own", 0), ("shared", 0), ("gone", 0), ("shared", 9)]
    assert await unclean_restart.withdraw_lost(store, BrokerConfigs(), 1, lost) == 1
    first, second = await states(store, "shared")
    assert (first.leader, first.isr, first.last_known_elr) == (-1, (2, 3), ())
    assert second == initial_record((2, 1, 3)), "it is whole"
    assert await states(store, "own") == [initial_record((1,))], "no other replica has it"
    assert await unclean_restart.withdraw_lost(store, BrokerConfigs(), 1, lost) == 0


@run_with(run)
async def test_doubtful_replicas_leave_unless_they_are_the_last(loop: SimLoop) -> None:
    store = SimStore(SimEtcd(loop.seed))
    alone = replace(initial_record((1, 2, 3)), isr=(1,), elr=())
    eligible = replace(initial_record((1, 2, 3)), isr=(1,), elr=(2,))
    await create(store, "own", initial_record((1,)))
    await create(store, "shared", initial_record((1, 2, 3)), alone, eligible)
    doubtful = [("own", 0), ("shared", 0), ("shared", 1), ("shared", 2), ("gone", 0)]
    assert await unclean_restart.withdraw_doubtful(store, BrokerConfigs(), 1, doubtful) == 2
    first, second, third = await states(store, "shared")
    assert (first.isr, second, third.isr) == ((2, 3), alone, ())
    assert third.elr == (2,)
    assert await states(store, "own") == [initial_record((1,))]
