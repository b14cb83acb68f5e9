"""Appending where a partition is led: the base offset once it is committed, or why not."""

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.coordinator.runtime.internal_producer import InternalProducer
from penstock.wire.records import Record, encode
from tests.run_with import run_with
from tests.unit.coordinator.queueing import CONFIGS, Node, on_node


def batch(count: int = 2) -> memoryview:
    return memoryview(encode([Record(0, 1, None, b"v") for _ in range(count)]))


@run_with(on_node, configs=CONFIGS)
async def test_append_returns_the_base_offset_once_committed(node: Node) -> None:
    await node.create("t", 1)
    posting = InternalProducer(node.around, "test")
    topic = node.ctx.image.topics["t"]
    assert await posting.append(topic, 0, batch()) == 0
    partition = node.ctx.partitions.get("t", 0)
    assert partition is not None
    assert partition.high_watermark == 2
    assert await posting.append(topic, 0, batch()) == 2


@run_with(on_node, configs=CONFIGS)
async def test_partition_that_is_not_open_here_is_refused(node: Node) -> None:
    await node.create("t", 1)
    topic = node.ctx.image.topics["t"]
    await node.delete("t")
    with pytest.raises(Refused) as refused:
        await InternalProducer(node.around, "test").append(topic, 0, batch())
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@run_with(on_node, configs=CONFIGS)
async def test_nothing_is_written_while_the_disk_is_nearly_full(node: Node) -> None:
    await node.create("t", 1)
    node.ctx.partitions.write_refusal = "the disk is full"
    with pytest.raises(Refused) as refused:
        await InternalProducer(node.around, "test").append(node.ctx.image.topics["t"], 0, batch())
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
