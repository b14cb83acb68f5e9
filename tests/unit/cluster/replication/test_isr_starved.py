"""Replica with a full disk: it hands over where the remaining replicas can continue."""

import asyncio
import errno

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.ports import Delete
from penstock.broker.api.data.produce import produce
from penstock.cluster.metadata import store_keys
from simulation.disk import Fault
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node
from tests.unit.broker.api.producing import batch, request, rows
from tests.unit.broker.api.replicating import append, led, replicate, synced
from tests.unit.cluster.replication.test_isr import Leader, on_leader


def fill(node: Node) -> None:
    node.disk.inject(Fault("append", errno.ENOSPC, times=1_000))


@run_with(on_leader)
async def test_leader_that_cannot_write_hands_over_at_once(leader: Leader) -> None:
    append(leader.node)
    await synced(leader.node)
    fill(leader.node)
    with pytest.raises(OSError, match="No space"):
        append(leader.node)
    await asyncio.sleep(0.1)
    record = await leader.stored()
    assert record.leader in (2, 3)
    assert record.isr == (2, 3)
    assert record.leader_epoch == 4
    assert leader.node.ctx.partitions.get("t", 0) is None


@run_with(on_leader)
async def test_leader_at_its_disk_reserve_hands_over_on_the_next_write(leader: Leader) -> None:
    leader.node.ctx.partitions.write_refusal = "the disk has 3 MiB left"
    answer = await leader.node.ask(produce, 9, request(("t", 0, batch())))
    assert rows(answer)[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    await asyncio.sleep(0.1)
    assert (await leader.stored()).isr == (2, 3)


@run_with(on_leader)
async def test_follower_that_cannot_write_leaves_the_isr(leader: Leader) -> None:
    node = leader.node
    await replicate(node, leader=2, epoch=4, partition_epoch=11)
    replica = node.ctx.partitions.replica("t", 0)
    assert replica is not None
    assert not replica.is_leader
    replica.mark_unwritable()
    await asyncio.sleep(0.1)
    record = await leader.stored()
    assert (record.leader, record.isr, record.leader_epoch) == (2, (2, 3), 4)


@run_with(on_leader)
async def test_leader_stays_when_no_other_replica_could_accept_writes(leader: Leader) -> None:
    node = leader.node
    await replicate(node, isr=(1, 2), partition_epoch=11)
    append(node)
    await synced(node)
    leader.fetched(2, 1)
    fill(node)
    with pytest.raises(OSError, match="No space"):
        append(node)
    await asyncio.sleep(3)
    record = await leader.stored()
    assert (record.leader, record.leader_epoch) == (1, 3)
    assert 1 in record.isr


@run_with(on_leader)
async def test_offline_replica_does_not_count_as_a_successor(leader: Leader) -> None:
    node = leader.node
    revision = await node.store.commit([], [Delete(store_keys.broker_key(3))])
    assert revision is not None
    await node.ctx.reached(revision)
    led(node).mark_unwritable()
    await asyncio.sleep(0.3)
    assert (await leader.stored()).leader == 1


@run_with(on_leader)
async def test_leader_with_free_space_again_stays(leader: Leader) -> None:
    node = leader.node
    await replicate(node, isr=(1, 2), partition_epoch=11)
    led(node).mark_unwritable()
    append(node)
    assert not led(node).is_unwritable
    await replicate(node, isr=(1, 2, 3), partition_epoch=12)
    await asyncio.sleep(0.3)
    assert (await leader.stored()).leader == 1
