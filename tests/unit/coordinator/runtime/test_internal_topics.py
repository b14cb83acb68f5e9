"""Internal topics: shaped by their configs, created once, and ready when `ensure` returns."""

import asyncio

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.metadata import store_keys, topics
from penstock.cluster.metadata.topics import NewTopic
from penstock.coordinator.runtime.internal_topics import OFFSETS, InternalTopics
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node

CONFIGS = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "2"}


@run_with(on_node, configs=CONFIGS)
async def test_internal_topics_are_compacted_and_sized_by_config(node: Node) -> None:
    await node.ctx.group.groups.ensure()
    await node.ctx.transaction.txns.ensure()
    known = node.ctx.image.topics
    offsets, txns = known["__consumer_offsets"], known["__transaction_state"]
    assert (len(offsets.partitions), len(txns.partitions)) == (3, 2)
    assert offsets.is_internal
    assert txns.is_internal
    for topic in (offsets, txns):
        assert topic.configs["cleanup.policy"] == "compact"
        assert topic.configs["segment.bytes"] == "104857600"
    assert txns.configs["min.insync.replicas"] == "1", "no more than there are replicas"


@run_with(on_node, configs=CONFIGS)
async def test_replication_factor_is_limited_to_the_number_of_brokers(node: Node) -> None:
    for number in (2, 3, 4, 5):
        record = store_keys.BrokerRecord(number, "localhost", 9092 + number)
        await node.put(store_keys.broker_key(number), record)
    await node.ctx.group.groups.ensure()
    (first, *_) = node.ctx.image.topics["__consumer_offsets"].partitions
    assert len(first.replicas) == 3
    assert node.ctx.image.topics["__consumer_offsets"].configs["cleanup.policy"] == "compact"


@run_with(on_node, configs=CONFIGS)
async def test_concurrent_requests_create_one_topic(node: Node) -> None:
    async def ask() -> int:
        await node.ctx.group.groups.ensure()
        return len(node.ctx.group.groups.host.runtimes)

    assert await asyncio.gather(*[ask() for _ in range(20)]) == [3] * 20


@run_with(on_node, configs=CONFIGS)
async def test_topic_created_by_another_node_is_found(node: Node) -> None:
    ctx = node.ctx
    new = NewTopic("__consumer_offsets", 2)
    plan = topics.plan_topic(new, ctx.image, ctx.configs, ctx.random)
    await topics.create_topic(ctx.admin.store, plan)
    assert "__consumer_offsets" not in ctx.image.topics, "known to the store only"
    await ctx.group.groups.ensure()
    assert len(node.ctx.image.topics["__consumer_offsets"].partitions) == 2


@run_with(on_node, configs=CONFIGS)
async def test_topic_creation_waits_for_enough_brokers_in_a_cluster(
    node: Node,
) -> None:
    ctx = node.ctx
    internal = InternalTopics(
        ctx.admin.store, ctx.watcher, ctx.partitions, ctx.configs, ctx.random, is_alone=False
    )
    for number in (2, 3):
        with pytest.raises(Refused, match="when there are 3 brokers") as refused:
            await internal.ensure(OFFSETS)
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert OFFSETS.name not in ctx.image.topics
        await node.put(
            store_keys.broker_key(number), store_keys.BrokerRecord(number, "other", 9092)
        )
    await internal.ensure(OFFSETS)
    (first, *_) = ctx.image.topics[OFFSETS.name].partitions
    assert len(first.replicas) == 3
