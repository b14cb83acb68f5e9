"""Positions over the API: kept, read and forgotten, row by row."""

from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicId
from penstock.broker.api.groups.offsets import offset_commit, offset_delete, offset_fetch
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.cluster.metadata import topics
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.run_with import run_with
from tests.unit.broker.api.harness import Node, on_node

CONFIGS = {"offsets.topic.num.partitions": "4", "offset.metadata.max.bytes": "10"}
NOWHERE = TopicId(b"\x01" * 16)


def position(index: int, offset: int, metadata: str = "") -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index, committed_offset=offset, committed_metadata=metadata
    )


async def commit(
    node: Node,
    version: int,
    *topics: tuple[str, TopicId | None, list[OffsetCommitRequestPartition]],
    group: str = "g",
) -> dict[tuple[str, int], int]:
    """The code of each row, by topic and partition (by id where the version has ids)."""
    known = node.ctx.image.topics
    request = OffsetCommitRequest(
        group_id=group,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                topic_id=topic_id or (known[name].id if name in known else NOWHERE),
                partitions=rows,
            )
            for name, topic_id, rows in topics
        ],
    )
    answer = await node.ask(offset_commit, version, request)
    names = {topic.id: topic.name for topic in known.values()}
    return {
        (topic.name or names.get(topic.topic_id, "?"), row.partition_index): row.error_code
        for topic in answer.topics
        for row in topic.partitions
    }


async def fetch(node: Node, version: int, **more: Any) -> Any:
    """Everything that group g has."""
    request = OffsetFetchRequest(
        group_id="g",
        topics=None,
        groups=[OffsetFetchRequestGroup(group_id="g", topics=None)],
        **more,
    )
    answer = await node.ask(offset_fetch, version, request)
    return answer.groups[0] if version >= 8 else answer


@pytest.mark.parametrize("version", range(2, 11))
@run_with(on_node, configs=CONFIGS)
async def test_committed_offset_is_returned_in_every_version(node: Node, *, version: int) -> None:
    await node.create("t", 2)
    await node.ctx.group.groups.ensure()
    assert await commit(node, version, ("t", None, [position(1, 42, "here")])) == {("t", 1): 0}
    (topic,) = (await fetch(node, max(2, version))).topics
    if version >= 10:
        assert topic.topic_id == node.ctx.image.topics["t"].id
    else:
        assert topic.name == "t"
    (row,) = topic.partitions
    assert (row.partition_index, row.committed_offset, row.metadata) == (1, 42, "here")


@pytest.mark.parametrize("version", [9, 10])
@run_with(on_node, configs=CONFIGS)
async def test_valid_rows_are_committed_and_invalid_ones_refused(
    node: Node, *, version: int
) -> None:
    for name in ("t", "secret"):
        await node.create(name, 1)
    await node.ctx.group.groups.ensure()
    node.rights.deny(Operation.READ, ResourceType.TOPIC, "secret")
    codes = await commit(
        node,
        version,
        ("t", None, [position(0, 1), position(1, 1), position(-1, 1)]),
        ("secret", None, [position(0, 1)]),
        ("nowhere", None, [position(0, 1)]),
    )
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else missing
    assert codes == {
        ("t", 0): ErrorCode.NONE,
        ("t", 1): missing,
        ("t", -1): missing,
        ("secret", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ("?" if version >= 10 else "nowhere", 0): unknown,
    }


@run_with(on_node, configs=CONFIGS)
async def test_oversized_metadata_refuses_its_own_row(node: Node) -> None:
    await node.create("t", 2)
    await node.ctx.group.groups.ensure()
    codes = await commit(node, 9, ("t", None, [position(0, 1, "x" * 11), position(1, 1)]))
    assert codes == {("t", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE, ("t", 1): ErrorCode.NONE}
    (topic,) = (await fetch(node, 9)).topics
    assert [row.partition_index for row in topic.partitions] == [1]


@run_with(on_node, configs=CONFIGS)
async def test_unknown_generation_commits_nothing(node: Node) -> None:
    await node.create("t", 1)
    await node.ctx.group.groups.ensure()
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=3,
        member_id="unknown",
        topics=[OffsetCommitRequestTopic(name="t", partitions=[position(0, 1)])],
    )
    answer = await node.ask(offset_commit, 8, request)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.ILLEGAL_GENERATION
    assert not (await fetch(node, 9)).topics


@run_with(on_node, configs=CONFIGS)
async def test_offset_requests_require_the_group_permission(node: Node) -> None:
    await node.create("t", 1)
    await node.ctx.group.groups.ensure()
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    node.rights.deny(Operation.READ, ResourceType.GROUP, "g")
    node.rights.deny(Operation.DESCRIBE, ResourceType.GROUP, "g")
    node.rights.deny(Operation.DELETE, ResourceType.GROUP, "g")
    assert await commit(node, 9, ("t", None, [position(0, 1)])) == {("t", 0): refused}
    assert (await fetch(node, 9)).error_code == refused
    assert (await fetch(node, 7)).error_code == refused
    request = OffsetDeleteRequest(group_id="g", topics=[])
    assert (await node.ask(offset_delete, 0, request)).error_code == refused


@run_with(on_node, configs=CONFIGS)
async def test_offsets_of_several_groups_are_fetched_at_once(node: Node) -> None:
    await node.create("t", 1)
    await node.ctx.group.groups.ensure()
    for number in range(3):
        await commit(node, 9, ("t", None, [position(0, number)]), group=f"g{number}")
    node.rights.deny(Operation.DESCRIBE, ResourceType.GROUP, "g1")
    wanted = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 7])]
    groups = [OffsetFetchRequestGroup(group_id=f"g{number}", topics=wanted) for number in range(4)]
    answer = await node.ask(offset_fetch, 8, OffsetFetchRequest(groups=groups))
    found = {
        group.group_id: [row.committed_offset for t in group.topics for row in t.partitions]
        for group in answer.groups
    }
    assert found == {"g0": [0, -1], "g1": [], "g2": [2, -1], "g3": [-1, -1]}


@run_with(on_node, configs=CONFIGS)
async def test_topics_by_id_must_exist_and_be_visible(node: Node) -> None:
    for name in ("t", "secret"):
        await node.create(name, 1)
    await node.ctx.group.groups.ensure()
    both = [("t", None, [position(0, 5)]), ("secret", None, [position(0, 6)])]
    await commit(node, 9, *both)
    node.rights.deny(Operation.DESCRIBE, ResourceType.TOPIC, "secret")
    known = node.ctx.image.topics
    ids = [known["t"].id, known["secret"].id, NOWHERE]
    wanted = [OffsetFetchRequestTopics(topic_id=i, partition_indexes=[0]) for i in ids]
    group = OffsetFetchRequestGroup(group_id="g", topics=wanted)
    (row,) = (await node.ask(offset_fetch, 10, OffsetFetchRequest(groups=[group]))).groups
    cells = {t.topic_id: t.partitions[0] for t in row.topics}
    assert cells[ids[0]].committed_offset == 5
    assert cells[ids[1]].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert cells[ids[2]].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    (shown,) = (await fetch(node, 10)).topics
    assert shown.topic_id == ids[0], "all means all that the caller may see"


@run_with(on_node, configs=CONFIGS)
async def test_oldest_version_returns_errors_in_rows(node: Node) -> None:
    await node.create("t", 1)
    await node.ctx.group.groups.ensure()
    request = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    )
    answer = await node.ask(offset_fetch, 1, request)
    (row,) = answer.topics[0].partitions
    assert (row.committed_offset, row.error_code) == (-1, ErrorCode.NONE)


@run_with(on_node, configs=CONFIGS)
async def test_offsets_are_deleted_one_by_one(node: Node) -> None:
    await node.create("t", 2)
    await node.ctx.group.groups.ensure()
    await commit(node, 9, ("t", None, [position(0, 1), position(1, 2)]))
    request = OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(
                name="t",
                partitions=[
                    OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)
                ],
            )
        ],
    )
    answer = await node.ask(offset_delete, 0, request)
    (topic,) = answer.topics
    assert {row.partition_index: row.error_code for row in topic.partitions} == {
        0: ErrorCode.NONE,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    (left,) = (await fetch(node, 9)).topics
    assert [row.partition_index for row in left.partitions] == [1]
    unknown = OffsetDeleteRequest(group_id="unknown", topics=request.topics)
    answer = await node.ask(offset_delete, 0, unknown)
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@run_with(on_node, configs=CONFIGS)
async def test_offsets_are_deleted_with_their_topic(node: Node) -> None:
    await node.create("t", 1)
    await node.create("u", 1)
    await node.ctx.group.groups.ensure()
    both = [("t", None, [position(0, 5)]), ("u", None, [position(0, 6)])]
    await commit(node, 9, *both)
    await node.ctx.reached(await topics.delete_topic(node.ctx.admin.store, "t"))
    found = await fetch(node, 9)
    assert [topic.name for topic in found.topics] == ["u"]
