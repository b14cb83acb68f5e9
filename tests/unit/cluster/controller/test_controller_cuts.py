"""Controller decisions from the nodes' reports of which nodes they reach, and their timing."""

import asyncio

from msgspec.structs import replace

from penstock.base.ports import Delete, Put
from penstock.cluster.controller.controller import PICTURE_PROBES
from penstock.cluster.controller.leader_elections import Election
from penstock.cluster.controller.placement import initial_record
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.peer_reachability import probe_seconds
from penstock.cluster.metadata.store_keys import ReachRecord
from tests.run_with import run_with
from tests.unit.cluster.controlling import World, play

NODES = (1, 2, 3, 4, 5)


async def say(world: World, node_id: int, *unreached: int) -> None:
    """As node `node_id` does, of the lives that there are."""
    epochs = {node: broker.epoch for node, broker in (await world.image()).brokers.items()}
    key = store_keys.reach_key(node_id)
    record = ReachRecord(epochs[node_id], {node: epochs[node] for node in unreached})
    change = Put(key, store_keys.encode(record)) if unreached else Delete(key)
    await world.observer.commit([], [change])


def picture_s(world: World) -> float:
    return PICTURE_PROBES * probe_seconds(world.members[1].configs)


@run_with(play)
async def test_leader_is_moved_after_all_nodes_had_time_to_report(world: World) -> None:
    await world.start(1, 2, 3)
    await world.create(initial_record((1, 2, 3)), min_insync_replicas="2")
    await asyncio.sleep(1)
    began_s = world.loop.time()
    await say(world, 2, 1)
    await say(world, 3, 1)
    await world.until(lambda image: image.topics["t"].partitions[0].leader == 2, seconds=3)
    assert world.loop.time() - began_s >= picture_s(world)
    assert (await world.record()).isr == (2, 3)
    elections = [kind for one in world.members.values() for kind in one.elections]
    assert elections == [Election.CLEAN]
    await say(world, 2)
    await say(world, 3)
    await asyncio.sleep(5)
    assert (await world.record()).leader == 2, "a repaired cut moves no leader"


@run_with(play)
async def test_controller_moves_its_own_leadership_away(world: World) -> None:
    await world.start(1, 2, 3)
    await asyncio.sleep(1)
    (own,) = world.active
    others = [node for node in (1, 2, 3) if node != own]
    await world.create(initial_record((own, *others)), min_insync_replicas="2")
    await say(world, own, *others)
    await world.until(lambda image: image.topics["t"].partitions[0].leader == others[0], seconds=3)
    assert world.active == [own]


@run_with(play)
async def test_incomplete_reports_move_no_leader(world: World) -> None:
    """Of two nodes cut off from three, the second is not counted among the three before it is
    reported.
    """

    await world.start(*NODES)
    await world.create(initial_record(NODES), min_insync_replicas="3")
    await asyncio.sleep(1)
    for node in (3, 4, 5):
        await say(world, node, 1)
    await asyncio.sleep(picture_s(world) / 2)
    for node in (3, 4, 5):
        await say(world, node, 1, 2)
    await world.until(lambda image: image.topics["t"].partitions[0].leader != 1, seconds=3)
    record = await world.record()
    assert (record.leader, record.isr, record.leader_epoch) == (3, (3, 4, 5), 1)


@run_with(play)
async def test_report_withdrawn_in_time_moves_no_leader(world: World) -> None:
    await world.start(1, 2, 3)
    await world.create(initial_record((1, 2, 3)), min_insync_replicas="2")
    await asyncio.sleep(1)
    await say(world, 1, 2, 3)
    await asyncio.sleep(picture_s(world) / 2)
    await say(world, 1)
    await asyncio.sleep(10)
    assert (await world.record()).leader_epoch == 0


@run_with(play)
async def test_preferred_replica_does_not_lead_while_cut_off(world: World) -> None:
    world.configs["leader.imbalance.check.interval.seconds"] = "2"
    await world.start(1, 2, 3)
    await asyncio.sleep(1)
    await say(world, 1, 3)
    await asyncio.sleep(3)
    record = initial_record((1, 2, 3))
    await world.create(record, min_insync_replicas="2")
    await world.put(replace(record, leader=2, leader_epoch=1, partition_epoch=1))
    await asyncio.sleep(10)
    assert (await world.record()).leader == 2
    await say(world, 1)
    await world.until(lambda image: image.topics["t"].partitions[0].leader == 1, seconds=10)
