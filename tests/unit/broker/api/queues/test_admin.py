"""InspectQueues, ChangeQueues and ListPositions, as the wire carries them."""

from typing import Any

from penstock.base.errors import ErrorCode
from penstock.broker.api.queues.admin import change_queues, inspect_queues, list_positions
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.wire.messages.internal.queue_admin import (
    ChangedPartition,
    ChangeQueuesRequest,
    InspectedPartition,
    InspectQueuesRequest,
    ListPositionsRequest,
    OffsetRun,
)
from tests.run_with import run_with
from tests.unit.coordinator.queueing import CONFIGS, Node, on_node, opened, take


async def inspect(node: Node, **asked: Any) -> Any:
    row = InspectedPartition(
        partition=asked.pop("partition", 0), from_offset=0, runs_max=asked.pop("runs_max", 10)
    )
    names = {"group_id": "g", "topic": "t", **asked}
    reply = await node.ask(inspect_queues, 0, InspectQueuesRequest(partitions=[row], **names))
    return reply.partitions[0]


async def change(node: Node, kind: int, first: int, last: int, **asked: Any) -> Any:
    row = ChangedPartition(
        partition=asked.pop("partition", 0), runs=[OffsetRun(first=first, last=last)]
    )
    names = {"group_id": "g", "topic": "t", **asked}
    reply = await node.ask(
        change_queues, 0, ChangeQueuesRequest(kind=kind, partitions=[row], **names)
    )
    return reply.partitions[0]


@run_with(on_node, configs=CONFIGS)
async def test_queue_is_inspected_and_changed(node: Node) -> None:
    queue = await opened(node, 6)
    await take(queue, count=2)
    seen = await inspect(node)
    assert (seen.error_code, seen.start_offset, seen.unfinished, seen.leased) == (0, 0, 6, 2)
    assert [(run.first, run.last, run.state, run.member) for run in seen.runs] == [
        (0, 1, 1, "a"),
        (2, 5, 0, ""),
    ]
    done = await change(node, 0, 0, 3)
    assert (done.error_code, done.changed, done.start_offset) == (0, 4, 4)
    done = await change(node, 1, 1, 2)
    assert (done.error_code, done.changed, done.start_offset) == (0, 2, 1)


@run_with(on_node, configs=CONFIGS)
async def test_each_partition_is_refused_with_its_own_reason(node: Node) -> None:
    await opened(node, 2)
    assert (await inspect(node, partition=9)).error_code == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert (await inspect(node, topic="x")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await inspect(node, group_id="")).error_code == ErrorCode.INVALID_GROUP_ID
    assert (await change(node, 7, 0, 0)).error_code == ErrorCode.INVALID_REQUEST
    assert (await change(node, 0, 0, 99)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    other = await change(node, 0, 0, 0, group_id="other")
    assert other.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@run_with(on_node, configs=CONFIGS)
async def test_queue_administration_requires_permissions(node: Node) -> None:
    await opened(node, 2)
    node.rights.deny(Operation.READ, ResourceType.TOPIC, "t")
    assert (await inspect(node)).error_code == 0
    assert (await change(node, 0, 0, 0)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    node.rights.deny(Operation.DESCRIBE, ResourceType.GROUP, "g")
    assert (await inspect(node)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    node.rights.deny(Operation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster")
    reply = await node.ask(list_positions, 0, ListPositionsRequest(topics=None))
    assert reply.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@run_with(on_node, configs=CONFIGS)
async def test_positions_of_a_topic_are_listed(node: Node) -> None:
    await opened(node, 2)
    reply = await node.ask(list_positions, 0, ListPositionsRequest(topics=["t"]))
    assert [(row.kind, row.group_id, row.topic) for row in reply.positions] == [(0, "g", "t")]
    assert list(reply.state_shards) == [0, 1]
