"""Shard host in a cluster: one runtime per leader epoch, without uncommitted records."""

import asyncio

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.store_keys import PartitionRecord
from penstock.cluster.replication.partition import Partition
from penstock.coordinator.runtime.shard_host import ShardHost
from tests.run_with import run_with
from tests.unit.broker.api.harness import NODE, Node, on_node
from tests.unit.coordinator.tally import TOPIC, Replies, Tally, count, host_on

FEW = {"offsets.topic.num.partitions": "1"}


async def elect(node: Node, leader: int, epoch: int, isr: tuple[int, ...] = (1,)) -> Partition:
    topic = node.ctx.image.topics[TOPIC]
    record = PartitionRecord((1, 2), leader, isr, leader_epoch=epoch, partition_epoch=epoch)
    await node.put(store_keys.partition_key(topic.id, 0), record)
    partition = node.ctx.partitions.replica(TOPIC, 0)
    assert partition is not None
    return partition


async def hosted(node: Node) -> ShardHost[Tally]:
    host = await host_on(node)
    node.ctx.partitions.on_change(host.follow)
    return host


@run_with(on_node, configs=FEW)
async def test_new_leader_epoch_loads_a_new_shard(node: Node) -> None:
    host = await hosted(node)
    runtime = host.runtime(0)
    replies: Replies = []
    count(runtime, b"a", replies)
    await asyncio.sleep(0.1)
    await elect(node, NODE, 5)
    assert host.runtime(0) is not runtime
    await asyncio.sleep(1)
    assert host.runtime(0).leader_epoch == 5
    assert host.runtime(0).require().counts == {b"a": 1}
    with pytest.raises(Refused) as refused:
        count(runtime, b"b", replies)
    assert refused.value.code is ErrorCode.NOT_COORDINATOR


@run_with(on_node, configs=FEW)
async def test_callers_are_redirected_when_leadership_is_lost(node: Node) -> None:
    host = await hosted(node)
    # The other replica is in sync and does not fetch: nothing is committed.
    await elect(node, NODE, 5, isr=(1, 2))
    await asyncio.sleep(1)
    replies: Replies = []
    count(host.runtime(0), b"a", replies)
    await asyncio.sleep(0.5)
    assert replies == []
    await elect(node, 2, 6, isr=(1, 2))
    (reply,) = replies
    assert isinstance(reply, Refused)
    assert reply.code is ErrorCode.NOT_COORDINATOR
    assert not host.runtimes
    await asyncio.sleep(5)
    assert not host.runtimes, "nothing is loaded that is not led"


@run_with(on_node, configs=FEW)
async def test_shard_serves_once_its_loaded_records_are_committed(
    node: Node,
) -> None:
    host = await hosted(node)
    count(host.runtime(0), b"a", [])
    await asyncio.sleep(0.1)
    await elect(node, 2, 4)
    # Elected again, with another replica in sync that may not have the last records.
    partition = await elect(node, NODE, 5, isr=(1, 2))
    partition.high_watermark = 0
    await asyncio.sleep(3)
    with pytest.raises(Refused) as refused:
        host.runtime(0).require()
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    loop = asyncio.get_running_loop()
    partition.replica_fetched(2, 0, partition.log.end_offset, loop.time())
    assert host.runtime(0).require().counts == {b"a": 1}


@run_with(on_node, configs=FEW)
async def test_node_unsure_of_its_leadership_coordinates_nothing(node: Node) -> None:
    class Doubt:
        valid_until = float("inf")

    host = await hosted(node)
    runtime = host.runtime(0)
    doubt = Doubt()
    home = runtime.partition._context
    runtime.partition._context = type(home)(home.node_id, home.flusher, doubt)
    count(runtime, b"a", [])
    await asyncio.sleep(0.1)
    doubt.valid_until = 0.0
    with pytest.raises(Refused) as refused:
        count(runtime, b"b", [])
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
