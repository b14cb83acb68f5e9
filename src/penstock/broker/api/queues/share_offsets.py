"""Offsets of share groups: DescribeShareGroupOffsets (api 90), versions 0-1;
AlterShareGroupOffsets (91), version 0; DeleteShareGroupOffsets (92), version 0.

Requests go to the group's coordinator, which knows the topics of a group. The start offsets
themselves come from the leaders of the partitions. The start offset is the first one that the group
has not finished; v1 adds the number of remaining records. Altering and deleting need a
group without members.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import NO_TOPIC_ID, TopicId
from penstock.base.state_machine import Decision, Token
from penstock.broker.api.call import Call
from penstock.broker.api.context import GroupContext, QueueContext
from penstock.broker.api.coordinator_calls import caller_of, may_group
from penstock.broker.api.response_rows import ROWS_MAX, may
from penstock.broker.api.route_row import Operation
from penstock.cluster.metadata.image import TopicImage
from penstock.coordinator.queues.admin import Told
from penstock.state.groups.shard import GroupShard
from penstock.state.groups.share.admin import LookAtShareGroup, ShareGroupView
from penstock.state.queues.state_shard import QueueKey
from penstock.wire.messages.share_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

Positioned: TypeAlias = GroupContext | QueueContext
"""Families that know the topics of a share group."""
NO_OFFSET = -1
PARTITIONS_MAX = 20_000


async def look_at(ctx: Positioned, call: Call, look: LookAtShareGroup) -> ShareGroupView:
    """Returns the group's topics from its shard, and records them there."""
    caller = caller_of(ctx, call)

    def decide(shard: GroupShard, token: Token, now_ms: int) -> Decision:
        return shard.handle(LookAtShareGroup.NAME, look, token, caller, now_ms)

    view: ShareGroupView = await ctx.groups.host.ask(look.group_id, decide)
    return view


def _visible(ctx: QueueContext, call: Call, name: str, operation: Operation) -> TopicImage:
    """Returns the topic if the caller may perform `operation` on it. Raises Refused."""
    if not may(ctx, call, operation, name):
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = ctx.image.topics.get(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name} does not exist.")
    return topic


def _known(ctx: Positioned, view: ShareGroupView) -> list[TopicImage]:
    """Returns the topics of the group that still exist."""
    by_id = ctx.image.topics_by_id
    return [by_id[TopicId(one)] for one in view.topics if one in by_id]


# -- description ------------------------------------------------------------------------------


async def describe_share_group_offsets(
    ctx: QueueContext, call: Call, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    rows = await asyncio.gather(
        *(_describe_group(ctx, call, asked) for asked in request.groups[:ROWS_MAX])
    )
    return DescribeShareGroupOffsetsResponse(groups=rows)


async def _describe_group(
    ctx: QueueContext, call: Call, asked: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    group_id = asked.group_id
    row = DescribeShareGroupOffsetsResponseGroup(
        group_id=group_id, topics=(), error_code=ErrorCode.NONE
    )
    try:
        if not may_group(ctx, call, Operation.DESCRIBE, group_id):
            raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not group_id:
            raise Refused(ErrorCode.INVALID_GROUP_ID)
        view = await look_at(ctx, call, LookAtShareGroup(group_id))
        if asked.topics is None:
            wanted: list[tuple[str, Sequence[int]]] = [
                (topic.name, range(len(topic.partitions)))
                for topic in _known(ctx, view)
                if may(ctx, call, Operation.DESCRIBE, topic.name)
            ]
        else:
            wanted = [(topic.topic_name, topic.partitions) for topic in asked.topics]
        row.topics = [
            await _describe_topic(ctx, call, group_id, name, indexes) for name, indexes in wanted
        ]
    except Refused as refused:
        row.error_code, row.error_message = refused.code, refused.message
    return row


async def _describe_topic(
    ctx: QueueContext, call: Call, group_id: str, name: str, indexes: Iterable[int]
) -> DescribeShareGroupOffsetsResponseTopic:
    indexes = list(indexes)[:PARTITIONS_MAX]
    told: list[Told]
    topic_id = NO_TOPIC_ID
    try:
        topic = _visible(ctx, call, name, Operation.DESCRIBE)
        topic_id = topic.id
        keys = [QueueKey(group_id, topic_id, index) for index in indexes]
        told = await ctx.queue_admin.describe(keys)
    except Refused as refused:
        told = [refused] * len(indexes)
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=topic_id,
        partitions=[_position(index, one) for index, one in zip(indexes, told, strict=True)],
    )


def _position(index: int, told: Told) -> DescribeShareGroupOffsetsResponsePartition:
    row = DescribeShareGroupOffsetsResponsePartition(
        partition_index=index,
        start_offset=NO_OFFSET,
        leader_epoch=0,
        error_code=ErrorCode.NONE,
    )
    if isinstance(told, Refused):
        row.error_code, row.error_message = told.code, told.message
    elif told is not None:
        row.start_offset, row.leader_epoch, row.lag = (
            told.start_offset,
            told.leader_epoch,
            told.lag,
        )
    return row


# -- alteration -------------------------------------------------------------------------------


async def alter_share_group_offsets(
    ctx: QueueContext, call: Call, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    group_id = request.group_id
    try:
        if not may_group(ctx, call, Operation.READ, group_id):
            raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not group_id:
            raise Refused(ErrorCode.INVALID_GROUP_ID)
        known = [ctx.image.topics.get(topic.topic_name) for topic in request.topics]
        ids = tuple(topic.id for topic in known if topic is not None)
        await look_at(
            ctx, call, LookAtShareGroup(group_id, must_be_empty=True, creates=True, add=ids)
        )
    except Refused as refused:
        return AlterShareGroupOffsetsResponse(
            error_code=refused.code, error_message=refused.message, responses=()
        )
    rows = [await _alter_topic(ctx, call, group_id, topic) for topic in request.topics]
    return AlterShareGroupOffsetsResponse(error_code=ErrorCode.NONE, responses=rows)


async def _alter_topic(
    ctx: QueueContext, call: Call, group_id: str, asked: AlterShareGroupOffsetsRequestTopic
) -> AlterShareGroupOffsetsResponseTopic:
    told: list[Told]
    topic_id = NO_TOPIC_ID
    try:
        topic = _visible(ctx, call, asked.topic_name, Operation.READ)
        topic_id = topic.id
        starts = [
            (QueueKey(group_id, topic_id, row.partition_index), max(row.start_offset, 0))
            for row in asked.partitions
        ]
        told = await ctx.queue_admin.move(starts)
    except Refused as refused:
        told = [refused] * len(asked.partitions)
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=asked.topic_name,
        topic_id=topic_id,
        partitions=[
            AlterShareGroupOffsetsResponsePartition(
                partition_index=row.partition_index,
                error_code=one.code if isinstance(one, Refused) else ErrorCode.NONE,
                error_message=one.message if isinstance(one, Refused) else None,
            )
            for row, one in zip(asked.partitions, told, strict=True)
        ],
    )


# -- deletion ---------------------------------------------------------------------------------


async def delete_share_group_offsets(
    ctx: QueueContext, call: Call, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    group_id = request.group_id
    try:
        if not may_group(ctx, call, Operation.DELETE, group_id):
            raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        view = await look_at(ctx, call, LookAtShareGroup(group_id, must_be_empty=True))
    except Refused as refused:
        return DeleteShareGroupOffsetsResponse(
            error_code=refused.code, error_message=refused.message, responses=()
        )
    rows = []
    for asked in request.topics:
        row = DeleteShareGroupOffsetsResponseTopic(
            topic_name=asked.topic_name, topic_id=NO_TOPIC_ID, error_code=ErrorCode.NONE
        )
        rows.append(row)
        try:
            topic = _visible(ctx, call, asked.topic_name, Operation.READ)
            row.topic_id = topic.id
            if topic.id in view.topics:
                await forget_topics(ctx, group_id, [topic])
                look = LookAtShareGroup(group_id, must_be_empty=True, remove=(topic.id,))
                await look_at(ctx, call, look)
        except Refused as refused:
            row.error_code, row.error_message = refused.code, refused.message
    return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.NONE, responses=rows)


async def forget_topics(ctx: Positioned, group_id: str, topics: Iterable[TopicImage]) -> None:
    """Deletes a group's offsets in these topics; refuses if one cannot be deleted now."""
    keys = [
        QueueKey(group_id, topic.id, index)
        for topic in topics
        for index in range(len(topic.partitions))
    ]
    for told in await ctx.queue_admin.forget(keys):
        if isinstance(told, Refused):
            raise told


async def forget_group(ctx: Positioned, call: Call, group_id: str) -> None:
    """Deletes the offsets of a share group before the group; other groups have none here."""
    try:
        view = await look_at(ctx, call, LookAtShareGroup(group_id, must_be_empty=True))
    except Refused:
        return  # Not a share group, or one that cannot be deleted: its shard answers.
    await forget_topics(ctx, group_id, _known(ctx, view))
