"""Shard host: a runtime for each partition, loaded from its log, and no service before that."""

import asyncio

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.metadata import topics
from penstock.coordinator.runtime.shard_host import ShardHost, ask
from penstock.log.log import Log
from penstock.state.groups.records import offset_key
from penstock.wire.records import Record, encode, read_header
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.coordinator.tally import TOPIC, Replies, Tally, count, host_on

FEW = {"offsets.topic.num.partitions": "2"}


async def loaded(host: ShardHost[Tally]) -> None:
    while host.is_loading:
        await asyncio.sleep(0.01)


@run_with(on_node, configs=FEW)
async def test_empty_partition_serves_at_once(node: Node) -> None:
    host = await host_on(node)
    assert sorted(host.runtimes) == [0, 1]
    assert not host.is_loading
    assert all(shard.loaded_ms is not None for _, shard in host.active())


@run_with(on_node, configs=FEW)
async def test_log_is_replayed_before_calls_are_served(node: Node) -> None:
    first = await host_on(node)
    for number in range(3_000):
        count(first.runtime(0), b"%d" % (number % 100), [])
    await asyncio.sleep(1)
    first.close()
    second = await host_on(node)
    with pytest.raises(Refused) as refused:
        count(second.runtime(0), b"a", [])
    assert refused.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await loaded(second)
    shard = second.runtime(0).require()
    assert shard.counts == {b"%d" % number: 30 for number in range(100)}
    assert second.runtime(1).require().counts == {}


@run_with(on_node, configs=FEW)
async def test_replay_restores_the_live_state(node: Node) -> None:
    host = await host_on(node)
    runtime = host.runtime(1)
    replies: Replies = []
    for number in range(50):
        count(runtime, b"%d" % (number % 7), replies)
    await asyncio.sleep(0.2)
    live = runtime.require().counts
    runtime.discard("to see what comes back")
    await asyncio.sleep(2)
    assert runtime.require().counts == live


@run_with(on_node, configs=FEW)
async def test_unreadable_partition_has_no_coordinator(node: Node) -> None:
    first = await host_on(node)
    count(first.runtime(0), b"a", [])
    await asyncio.sleep(0.1)
    first.close()
    partition = node.ctx.partitions.get(TOPIC, 0)
    assert partition is not None
    node.disk.damage(f"{partition.log.path}/{0:020}.log", 0)
    second = await host_on(node)
    await loaded(second)
    with pytest.raises(Refused) as refused:
        count(second.runtime(0), b"a", [])
    assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    count(second.runtime(1), b"a", [])


@run_with(on_node, configs=FEW)
async def test_lost_partition_is_not_taken_for_an_empty_one(node: Node) -> None:
    """Else groups would have no committed offsets, and begin anew."""

    first = await host_on(node)
    count(first.runtime(0), b"a", [])
    await asyncio.sleep(0.1)
    first.close()
    partition = node.ctx.partitions.get(TOPIC, 0)
    assert partition is not None
    held = partition.log
    node.disk.remove_path(held.path)
    partition.log = Log.open(node.disk, held.path, held.config, 0, None, None, 1)
    assert partition.log.is_lost
    second = await host_on(node)
    await loaded(second)
    with pytest.raises(Refused) as refused:
        second.runtime(0).require()
    assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert f"{TOPIC}-0" in str(refused.value)
    second.runtime(1).require()


@run_with(on_node, configs=FEW)
async def test_unknown_record_stops_only_its_shard(node: Node) -> None:
    await node.ctx.group.groups.ensure()
    partition = node.ctx.partitions.get(TOPIC, 0)
    assert partition is not None
    batch = memoryview(encode([Record(0, 1, offset_key("g", "t", 0), b"not msgpack", ())]))
    partition.append(batch, read_header(batch), 1)
    await asyncio.sleep(0.1)
    host = node.ctx.group.groups.host
    host.runtime(0).discard("to load what is there now")
    await asyncio.sleep(2)
    with pytest.raises(Refused) as refused:
        host.runtime(0).require()
    assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    host.runtime(1).require()


@run_with(on_node, configs=FEW)
async def test_shards_end_with_their_topic(node: Node) -> None:
    host = await host_on(node)
    node.ctx.partitions.on_change(host.follow)
    runtime = host.runtime(0)
    await node.ctx.reached(await topics.delete_topic(node.ctx.admin.store, TOPIC))
    assert host.runtimes == {}
    assert runtime.refusal == ErrorCode.NOT_COORDINATOR
    with pytest.raises(Refused) as refused:
        host.runtime_of("g")
    assert refused.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@run_with(on_node, configs=FEW)
async def test_cancelled_wait_drops_the_call(node: Node) -> None:
    runtime = (await host_on(node)).runtime(0)
    waiting = ask(runtime, lambda shard, token, now_ms: shard.park(token, now_ms + 60_000))
    assert runtime.waiting == 1
    waiting.cancel()
    await asyncio.sleep(0)
    assert runtime.waiting == 0
    assert len(runtime.require().gone) == 1


@run_with(on_node, configs=FEW)
async def test_replies_and_refusals_can_be_awaited(node: Node) -> None:
    host = await host_on(node)
    runtime = host.runtime_of("some group")
    assert await ask(runtime, lambda shard, token, now_ms: shard.count(b"a", token)) == 1
    waiting = ask(runtime, lambda shard, token, now_ms: shard.count(b"a", token))
    runtime.retire()
    with pytest.raises(Refused):
        await waiting
