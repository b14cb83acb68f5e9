"""Controller election, and its reaction to brokers and controllers that fail."""

import asyncio
import random
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.base.ids import TopicId
from penstock.base.ports import Expect, Put
from penstock.cluster.controller.controller import is_controller_missing
from penstock.cluster.controller.leader_elections import Election
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.image import Image
from penstock.cluster.metadata.store_keys import (
    NO_LEADER,
    BrokerRecord,
    ControllerRecord,
    DeletedRecord,
    PartitionRecord,
)
from tests.run_with import run_with
from tests.unit.cluster.controlling import World, play, spread

# Controller election.


@run_with(play)
async def test_one_node_becomes_controller_and_stays_it(world: World) -> None:
    await world.start(1, 2, 3)
    await asyncio.sleep(1)
    assert len(world.active) == 1
    image = await world.image()
    assert image.controller is not None
    before = image.controller_revision
    await asyncio.sleep(60)
    assert (await world.image()).controller_revision == before


@run_with(play)
async def test_dead_controller_is_replaced_at_once_on_evidence(world: World) -> None:
    await world.start(1, 2, 3)
    await asyncio.sleep(1)
    first = world.active[0]
    others = [node for node in (1, 2, 3) if node != first]
    began_s = world.loop.time()
    await world.kill(first, witnesses=others)
    image = await world.until(
        lambda image: not is_controller_missing(image) and first not in image.brokers, seconds=0.1
    )
    assert image.controller is not None
    assert image.controller.node_id in others
    assert world.loop.time() - began_s < 0.1


@run_with(play)
async def test_silent_controller_is_replaced_when_its_lease_ends(world: World) -> None:
    await world.start(1, 2, 3)
    await asyncio.sleep(1)
    first = world.active[0]
    await world.kill(first)
    await world.until(
        lambda image: not is_controller_missing(image) and first not in image.brokers, seconds=10
    )


@run_with(play)
async def test_controller_record_of_an_earlier_registration_is_replaced(world: World) -> None:
    await world.start(1)
    await asyncio.sleep(1)
    stale = ControllerRecord(2, 99, 5)
    await world.observer.commit([], [Put(store_keys.CONTROLLER, store_keys.encode(stale))])
    await world.until(
        lambda image: image.controller is not None and image.controller.node_id == 1, 1
    )
    assert (await world.image()).controller.epoch > 99  # type: ignore[union-attr]


@run_with(play)
async def test_restarted_controller_is_elected_again_once(world: World) -> None:
    await world.start(1, 2)
    await asyncio.sleep(1)
    first = world.active[0]
    await world.kill(first)
    await world.start(first)  # Long before the lease of its past life ends.
    await world.until(lambda image: not is_controller_missing(image), seconds=1)
    await asyncio.sleep(0.1)
    assert len(world.active) == 1


@run_with(play)
async def test_deposed_controller_without_news_changes_nothing(
    world: World,
) -> None:
    await world.start(1)
    await asyncio.sleep(1)
    successor = store_keys.encode(BrokerRecord(2, "h", 2, epoch=7))
    await world.observer.commit([], [Put(store_keys.broker_key(2), successor)])
    await asyncio.sleep(1)
    world.etcd.watch_delay_s = (0.5, 0.5)
    await world.create(PartitionRecord(replicas=(3, 1), leader=3, isr=(3, 1)))
    record = store_keys.encode(ControllerRecord(2, 1000, 7))
    await world.observer.commit([], [Put(store_keys.CONTROLLER, record)])
    await asyncio.sleep(0.8)
    assert world.active == [1], "it has seen the topic, but not that it is deposed"
    await asyncio.sleep(10)
    assert world.active == []
    assert (await world.record()).leader == 3


@run_with(play)
async def test_controller_epochs_grow(world: World) -> None:
    await world.start(1, 2, 3)
    epochs = []
    for _ in range(2):
        await asyncio.sleep(1)
        image = await world.image()
        assert image.controller is not None
        epochs.append(image.controller.epoch)
        first = world.active[0]
        await world.kill(first, witnesses=list(set(world.members) - {first}))
    assert epochs == sorted(set(epochs))


# Dead brokers.


def leaders(image: Image) -> list[int]:
    return [record.leader for record in image.topics["t"].partitions]


def forgets(image: Image, node_id: int) -> bool:
    return all(node_id not in record.isr for record in image.topics["t"].partitions)


@run_with(play)
async def test_dead_leader_is_replaced_and_leaves_the_isr(world: World) -> None:
    await world.start(1, 2, 3)
    await world.create(*spread(300, 1, 2, 3), min_insync_replicas="2")
    await asyncio.sleep(1)
    controller = world.active[0]
    dead = next(node for node in (1, 2, 3) if node != controller)
    await world.kill(dead, witnesses=[controller])
    image = await world.until(lambda image: forgets(image, dead), seconds=0.2)
    for record in image.topics["t"].partitions:
        assert record.leader == record.isr[0]
        assert not record.elr


@run_with(play)
async def test_without_evidence_leader_is_replaced_when_its_lease_ends(world: World) -> None:
    await world.start(1, 2, 3)
    await world.create(*spread(3, 1, 2, 3))
    await asyncio.sleep(1)
    dead = next(node for node in (1, 2, 3) if node != world.active[0])
    await world.kill(dead)
    await asyncio.sleep(5)
    assert dead in leaders(await world.image())
    await world.until(lambda image: dead not in leaders(image), seconds=6)


@run_with(play)
async def test_evidence_about_an_earlier_registration_is_ignored(world: World) -> None:
    await world.start(1, 2, 3)
    await asyncio.sleep(1)
    controller = world.active[0]
    other = next(node for node in (1, 2, 3) if node != controller)
    epoch = world.members[other].membership.epoch
    await world.kill(other, witnesses=[controller])
    await world.until(lambda image: other not in image.brokers, seconds=1)
    await world.start(other)
    await asyncio.sleep(1)
    for member in world.members.values():
        member.controller.evidence(other, epoch)
    await asyncio.sleep(5)
    assert other in (await world.image()).brokers


@run_with(play)
async def test_dead_broker_is_fenced_by_another_node_if_the_controller_does_not(
    world: World,
) -> None:
    await world.start(1, 2, 3)
    await asyncio.sleep(1)
    controller = world.active[0]
    dead, witness = [node for node in (1, 2, 3) if node != controller]
    await world.kill(dead, witnesses=[witness])
    await asyncio.sleep(0.3)
    assert dead in (await world.image()).brokers
    await world.until(lambda image: dead not in image.brokers, seconds=1)


@run_with(play)
async def test_last_in_sync_replica_stays_eligible_and_leads_when_it_returns(
    world: World,
) -> None:
    await world.start(1, 2, 3)
    born = PartitionRecord(replicas=(3, 2, 1), leader=3, isr=(3,))
    await world.create(born, min_insync_replicas="1")
    await asyncio.sleep(1)
    await world.kill(3, witnesses=[1, 2])
    image = await world.until(lambda image: leaders(image) == [NO_LEADER], seconds=1)
    record = image.topics["t"].partitions[0]
    assert (record.isr, record.elr) == ((), (3,))
    await world.start(3)
    image = await world.until(lambda image: leaders(image) == [3], seconds=1)
    record = image.topics["t"].partitions[0]
    assert (record.isr, record.elr, record.leader_epoch) == ((3,), (), 2)
    assert all(Election.UNCLEAN not in m.elections for m in world.members.values())


@run_with(play)
async def test_unclean_election_happens_only_when_enabled_and_is_counted(world: World) -> None:
    await world.start(1, 2, 3)
    born = PartitionRecord(replicas=(3, 2, 1), leader=3, isr=(3,))
    await world.create(born)
    await asyncio.sleep(1)
    await world.kill(3, witnesses=[1, 2])
    await asyncio.sleep(2)
    assert leaders(await world.image()) == [NO_LEADER]
    await world.create(born, unclean_leader_election_enable="true")
    image = await world.until(lambda image: leaders(image) == [2], seconds=1)
    record = image.topics["t"].partitions[0]
    assert record.isr == (2,)
    assert record.is_recovering
    counted = [kind for member in world.members.values() for kind in member.elections]
    assert counted == [Election.UNCLEAN]


@run_with(play)
async def test_draining_broker_hands_over_leadership_and_stays_in_the_isr(world: World) -> None:
    await world.start(1, 2, 3)
    await world.create(*spread(9, 1, 2, 3))
    await asyncio.sleep(1)
    await world.members[2].membership.drain()
    image = await world.until(lambda image: 2 not in leaders(image), seconds=1)
    assert all(2 in record.isr for record in image.topics["t"].partitions)


# Under trouble.


@pytest.mark.parametrize("seed", range(8))
@run_with(play, fixtures=["seed"])
async def test_unknown_commits_and_lost_watches_only_delay_elections(world: World) -> None:
    await world.start(1, 2, 3)
    await world.create(*spread(250, 1, 2, 3), min_insync_replicas="2")
    await asyncio.sleep(2)
    world.etcd.unknown_ratio = 0.3
    world.etcd.timeout_s = 0.3
    world.etcd.delay_s = (0.0, 0.02)
    world.etcd.watch_delay_s = (0.0, 0.5)
    controller = world.active[0]
    dead = next(node for node in (1, 2, 3) if node != controller)
    await world.kill(dead, witnesses=[node for node in (1, 2, 3) if node != dead])
    for _ in range(5):
        await asyncio.sleep(0.2)
        world.etcd.compact()
    await asyncio.sleep(20)
    world.etcd.unknown_ratio = 0.0
    image = await world.until(lambda image: forgets(image, dead), seconds=30)
    for record in image.topics["t"].partitions:
        assert record.leader in record.isr
        # A late commit must not have been counted twice.
        assert record.leader_epoch <= record.partition_epoch


@pytest.mark.parametrize("seed", range(4))
@run_with(play, fixtures=["seed"])
async def test_isolated_controller_and_its_successor_decide_once(world: World) -> None:
    await world.start(1, 2, 3)
    await world.create(*spread(50, 1, 2, 3))
    await asyncio.sleep(2)
    first = world.active[0]
    # Another node is elected controller while the watch of the first is far behind.
    world.etcd.watch_delay_s = (0.3, 0.6)
    other = next(node for node in (1, 2, 3) if node != first)
    image = await world.image()
    usurper = world.members[other].membership
    record = ControllerRecord(other, image.revision, usurper.epoch)
    await world.observer.commit(
        [Expect(store_keys.CONTROLLER, image.controller_revision)],
        [Put(store_keys.CONTROLLER, store_keys.encode(record), usurper.lease)],
    )
    dead = next(node for node in (1, 2, 3) if node not in (first, other))
    await world.kill(dead, witnesses=[first, other])
    await world.until(lambda image: forgets(image, dead), seconds=10)
    await asyncio.sleep(5)
    for state in (await world.image()).topics["t"].partitions:
        assert state.partition_epoch == 1, "decided once, though two controllers tried"


@run_with(play)
async def test_cluster_recovers_from_a_store_outage(world: World) -> None:
    await world.start(1, 2, 3)
    await world.create(*spread(3, 1, 2, 3))
    await asyncio.sleep(1)
    world.etcd.down = True
    await asyncio.sleep(5)
    world.etcd.down = False
    await asyncio.sleep(15)
    await world.until(lambda image: not is_controller_missing(image), seconds=1)
    image = await world.image()
    assert all(record.leader in image.brokers for record in image.topics["t"].partitions)


class Losing(random.Random):
    """For a store whose unknown changes are never done."""

    def choice(self, seq: Any) -> Any:
        assert "lost" in seq
        return "lost"


@run_with(play)
async def test_updates_the_store_did_not_apply_are_retried(world: World) -> None:
    await world.start(1, 2)
    await asyncio.sleep(1)
    world.etcd.timeout_s = 1.0
    await world.create(PartitionRecord(replicas=(3, 1), leader=3, isr=(3, 1)))
    world.etcd.unknown_ratio, world.etcd.rng = 1.0, Losing(0)
    await asyncio.sleep(60)
    world.etcd.unknown_ratio = 0.0
    # Nothing more happens that could remind the controller.
    await world.until(lambda image: leaders(image) == [1], seconds=20)


# Moves, balance, deletions.


@run_with(play)
async def test_reassignment_completes_once_the_new_replica_is_in_sync(world: World) -> None:
    await world.start(1, 2, 3)
    await world.create(PartitionRecord(replicas=(1, 2), leader=1, isr=(1, 2)))
    await asyncio.sleep(1)
    moving = PartitionRecord(
        replicas=(3, 2, 1), leader=1, isr=(1, 2), adding=(3,), removing=(1,), partition_epoch=1
    )
    await world.put(moving)
    await asyncio.sleep(5)
    assert await world.record() == moving
    await world.put(replace(moving, isr=(1, 2, 3), partition_epoch=2))
    image = await world.until(lambda image: leaders(image) == [3], seconds=1)
    record = image.topics["t"].partitions[0]
    assert (record.replicas, record.isr, record.adding, record.removing) == (
        (3, 2),
        (2, 3),
        (),
        (),
    )


@run_with(play)
async def test_preferred_replica_leads_again_after_the_check_interval(world: World) -> None:
    await world.start(1, 2, 3)
    away = PartitionRecord(replicas=(1, 2), leader=2, isr=(1, 2))
    lagging = PartitionRecord(replicas=(1, 2), leader=2, isr=(2,))
    await world.create(away, lagging)
    await asyncio.sleep(250)
    assert leaders(await world.image()) == [2, 2]
    await asyncio.sleep(60)
    assert leaders(await world.image()) == [1, 2]


@run_with(play)
async def test_leaders_stay_when_auto_rebalance_is_disabled(world: World) -> None:
    world.configs["auto.leader.rebalance.enable"] = "false"
    await world.start(1, 2)
    await world.create(PartitionRecord(replicas=(1, 2), leader=2, isr=(1, 2)))
    await asyncio.sleep(700)
    assert leaders(await world.image()) == [2]


@run_with(play)
async def test_confirmed_topic_deletion_is_removed_from_the_store(world: World) -> None:
    await world.start(1)
    await asyncio.sleep(1)
    gone = TopicId(bytes([9]) * 16)
    record = DeletedRecord("old", 300, replicas=(1, 2), confirmed=(1, 2))
    state = PartitionRecord(replicas=(1, 2), leader=1, isr=(1,))
    for index in range(300):
        await world.put(state, index, gone)
    waiting = TopicId(bytes([8]) * 16)
    await world.observer.commit(
        [],
        [
            Put(store_keys.deleted_key(gone), store_keys.encode(record)),
            Put(
                store_keys.deleted_key(waiting),
                store_keys.encode(replace(record, confirmed=(1,))),
            ),
        ],
    )
    image = await world.until(lambda image: gone not in image.deleted, seconds=1)
    assert waiting in image.deleted
    _, left = await world.observer.range(store_keys.partitions_prefix(gone))
    assert left == []


@run_with(play)
async def test_deposed_controller_is_idle(world: World) -> None:
    await world.start(1, 2)
    await asyncio.sleep(1)
    first = world.active[0]
    other = world.members[3 - first].membership
    record = ControllerRecord(3 - first, 1000, other.epoch)
    await world.observer.commit(
        [], [Put(store_keys.CONTROLLER, store_keys.encode(record), other.lease)]
    )
    await asyncio.sleep(1000)
    assert world.active == [3 - first]
    # Renewals every two seconds, and a look at the leaders now and then: no more than that.
    assert world.loop.callbacks < 50_000
