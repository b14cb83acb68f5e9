"""Positions of share groups: described with their lag, moved, and forgotten."""

from typing import Any

from penstock.base.errors import ErrorCode
from penstock.broker.api.queues.share_offsets import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
)
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.wire.messages.share_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from tests.run_with import run_with
from tests.unit.broker.api.groups.test_share_groups import beat
from tests.unit.broker.api.harness import Node, on_node
from tests.unit.broker.api.sharing import ACCEPT, CONFIGS, Member, acquired, set_up


async def describe(node: Node, topics: dict[str, list[int]] | None = None, version: int = 1) -> Any:
    rows = None
    if topics is not None:
        rows = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes)
            for name, indexes in topics.items()
        ]
    group = DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=rows)
    request = DescribeShareGroupOffsetsRequest(groups=[group])
    (answer,) = (await node.ask(describe_share_group_offsets, version, request)).groups
    return answer


def positions(answer: Any) -> dict[tuple[str, int], tuple[int, int, int]]:
    """Error code, start offset and lag, by topic and partition."""
    return {
        (topic.topic_name, row.partition_index): (row.error_code, row.start_offset, row.lag)
        for topic in answer.topics
        for row in topic.partitions
    }


async def alter(node: Node, starts: dict[int, int], topic: str = "t") -> Any:
    rows = [
        AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=start)
        for index, start in starts.items()
    ]
    request = AlterShareGroupOffsetsRequest(
        group_id="g",
        topics=[AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=rows)],
    )
    return await node.ask(alter_share_group_offsets, 0, request)


async def delete(node: Node, *topics: str) -> Any:
    rows = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
    request = DeleteShareGroupOffsetsRequest(group_id="g", topics=rows)
    return await node.ask(delete_share_group_offsets, 0, request)


async def group_at_two(node: Node) -> None:
    """A group that has finished two of five records in one of two partitions, and left."""
    await node.ctx.group.groups.ensure()
    await set_up(node, 5, partitions=2)
    await beat(node)
    member = Member(node)
    await member.fetch(0)
    await member.answer([(0, 1, ACCEPT)], epoch=-1)


@run_with(on_node, configs=CONFIGS)
async def test_all_offsets_are_described_with_their_lag(node: Node) -> None:
    await group_at_two(node)
    answer = await describe(node)
    assert answer.error_code == 0
    assert positions(answer) == {("t", 0): (0, 2, 3), ("t", 1): (0, -1, -1)}
    old = await describe(node, version=0)
    assert positions(old)["t", 0][:2] == (0, 2)


@run_with(on_node, configs=CONFIGS)
async def test_requested_offsets_are_answered_row_by_row(node: Node) -> None:
    await group_at_two(node)
    found = positions(await describe(node, {"t": [0, 7], "nothing": [0]}))
    assert found["t", 0] == (0, 2, 3)
    assert found["t", 7][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found["nothing", 0][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    node.rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, "t")
    found = positions(await describe(node, {"t": [0]}))
    assert found["t", 0][0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert positions(await describe(node)) == {}


@run_with(on_node, configs=CONFIGS)
async def test_unknown_group_has_no_offsets(node: Node) -> None:
    await node.ctx.group.groups.ensure()
    assert (await describe(node)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await delete(node, "t")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    node.rights.deny(Operation.DESCRIBE, ResourceType.GROUP, "g")
    assert (await describe(node)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


@run_with(on_node, configs=CONFIGS)
async def test_offsets_of_an_empty_group_are_altered(node: Node) -> None:
    await group_at_two(node)
    assert (await alter(node, {0: 1})).error_code == ErrorCode.NON_EMPTY_GROUP
    await beat(node, epoch=-1)
    answer = await alter(node, {0: 1, 7: 0})
    assert answer.error_code == 0
    codes = [row.error_code for row in answer.responses[0].partitions]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert positions(await describe(node))["t", 0] == (0, 1, 4)
    assert acquired(await Member(node, "n").fetch(0)) == [(1, 4, 1)]
    answer = await alter(node, {0: 0}, "nothing")
    (row,) = answer.responses[0].partitions
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@run_with(on_node, configs=CONFIGS)
async def test_altering_offsets_creates_the_group(node: Node) -> None:
    await node.ctx.group.groups.ensure()
    await set_up(node, 5)
    assert (await alter(node, {0: 3})).error_code == 0
    assert positions(await describe(node)) == {("t", 0): (0, 3, 2)}
    assert acquired(await Member(node).fetch(0)) == [(3, 4, 1)]
    node.rights.deny(Operation.READ, ResourceType.GROUP, "g")
    assert (await alter(node, {0: 3})).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


@run_with(on_node, configs=CONFIGS)
async def test_offset_deletion_requires_the_topic_permission(node: Node) -> None:
    await group_at_two(node)
    await beat(node, epoch=-1)
    before = positions(await describe(node))
    node.rights.deny(Operation.READ, ResourceType.TOPIC, "t")
    for answer in (await delete(node, "t"), await alter(node, {0: 1})):
        (row,) = answer.responses
        rows = getattr(row, "partitions", [row])
        codes = [one.error_code for one in rows]
        assert codes == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert positions(await describe(node)) == before


@run_with(on_node, configs=CONFIGS)
async def test_offsets_of_an_empty_group_are_deleted(node: Node) -> None:
    await group_at_two(node)
    assert (await delete(node, "t")).error_code == ErrorCode.NON_EMPTY_GROUP
    await beat(node, epoch=-1)
    answer = await delete(node, "t", "nothing")
    assert [row.error_code for row in answer.responses] == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert positions(await describe(node)) == {}
    assert acquired(await Member(node, "n").fetch(0)) == [(0, 4, 1)]
