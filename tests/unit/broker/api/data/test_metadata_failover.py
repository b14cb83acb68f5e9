"""Metadata and FindCoordinator while a leader has just died: they name its successor."""

import asyncio

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicId
from penstock.broker.api.data.metadata import metadata
from penstock.broker.api.groups.membership import find_coordinator
from penstock.cluster.metadata import store_keys
from penstock.cluster.metadata.membership import ClusterMembership
from penstock.cluster.metadata.store_keys import BrokerRecord, PartitionRecord
from penstock.cluster.metadata.topics import NewTopic, create_topic, plan_topic
from penstock.wire.messages.classic_groups import FindCoordinatorRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node

OFFSETS = "__consumer_offsets"


async def led_by(node: Node, name: str, leader: int, epoch: int) -> None:
    """The topic's only partition has this leader; the topic is created if need be."""
    ctx = node.ctx
    if name not in ctx.image.topics:
        plan = plan_topic(NewTopic(name, 1), ctx.image, ctx.configs, ctx.random)
        await ctx.reached(await create_topic(ctx.admin.store, plan))
    topic_id: TopicId = ctx.image.topics[name].id
    record = PartitionRecord(
        replicas=(1, 2), isr=(1, 2), leader=leader, leader_epoch=epoch, partition_epoch=epoch
    )
    await node.put(store_keys.partition_key(topic_id, 0), record)


async def lose_node_2(node: Node, name: str) -> None:
    await node.put(store_keys.broker_key(2), BrokerRecord(2, "other", 9092, 1))
    await led_by(node, name, 2, 1)
    node.ctx.metadata.failures.record_failure(2)


def ask_leader(node: Node, request: MetadataRequest) -> "asyncio.Task[int]":
    async def ask() -> int:
        answer = await node.ask(metadata, 12, request)
        leader: int = answer.topics[0].partitions[0].leader_id
        return leader

    return asyncio.ensure_future(ask())


@run_with(on_node)
async def test_metadata_waits_for_the_successor_of_a_failed_leader(node: Node) -> None:
    await lose_node_2(node, "t")
    topic_id = node.ctx.image.topics["t"].id
    asking = [
        ask_leader(node, request)
        for request in (
            MetadataRequest(topics=None),
            MetadataRequest(topics=[MetadataRequestTopic(name="t")]),
            MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)]),
        )
    ]
    await asyncio.sleep(0.3)
    assert not any(task.done() for task in asking)
    await led_by(node, "t", 1, 2)
    assert [await task for task in asking] == [1, 1, 1]


@run_with(on_node)
async def test_metadata_returns_the_failed_leader_if_no_successor_comes(node: Node) -> None:
    await lose_node_2(node, "t")
    began_s = asyncio.get_running_loop().time()
    assert await ask_leader(node, MetadataRequest(topics=None)) == 2
    assert 0.9 < asyncio.get_running_loop().time() - began_s < 1.1


@run_with(on_node)
async def test_metadata_of_other_topics_does_not_wait(node: Node) -> None:
    await lose_node_2(node, "t")
    await led_by(node, "other", 1, 1)
    began_s = asyncio.get_running_loop().time()
    request = MetadataRequest(topics=[MetadataRequestTopic(name="other")])
    assert await ask_leader(node, request) == 1
    assert await node.ask(metadata, 12, MetadataRequest(topics=[])) is not None
    assert asyncio.get_running_loop().time() - began_s < 0.1


@run_with(on_node, configs={"offsets.topic.num.partitions": "1"})
async def test_failed_coordinator_is_not_returned(node: Node) -> None:
    await lose_node_2(node, OFFSETS)
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    asking = asyncio.ensure_future(node.ask(find_coordinator, 6, request))
    await asyncio.sleep(0.3)
    assert not asking.done()
    await led_by(node, OFFSETS, 1, 2)
    (row,) = (await asking).coordinators
    assert (row.error_code, row.node_id) == (ErrorCode.NONE, 1)


@run_with(on_node)
async def test_node_unsure_of_its_registration_closes_the_connection(
    node: Node,
) -> None:
    ctx = node.ctx
    unsure = ClusterMembership(1, ctx.admin.store, ctx.configs, is_leased=True)
    ctx.metadata.membership = ctx.group.membership = unsure
    coordinator = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    assert (await node.send(metadata, 12, MetadataRequest(topics=None))).is_hung_up
    assert (await node.send(find_coordinator, 6, coordinator)).is_hung_up
