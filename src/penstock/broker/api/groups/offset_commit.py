"""Committed offsets: OffsetCommit (api 8), versions 2-10; OffsetFetch (9), 1-10; OffsetDelete
(47), 0.

The group's shard stores and reads offsets. These handlers check the existence of topics and the
caller's permissions, which the shard does not know, and join refused rows and the shard's rows to
one response. OffsetCommit and OffsetFetch v10 name topics by id; OffsetFetch v8 names several
groups.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import NO_TOPIC_ID
from penstock.base.state_machine import Decision, Token
from penstock.broker.api.call import Call
from penstock.broker.api.context import GroupContext
from penstock.broker.api.coordinator_calls import ask_group, caller_of, gathered, may_group
from penstock.broker.api.response_rows import may
from penstock.broker.api.route_row import Operation
from penstock.state.groups.error_replies import refusal
from penstock.state.groups.shard import GroupShard
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

TOPIC_IDS_SINCE = 10
GROUPS_SINCE = 8
GROUPS_MAX = 10_000
NO_OFFSET = -1


# -- OffsetCommit -----------------------------------------------------------------------------


def offset_commit(ctx: GroupContext, call: Call, request: OffsetCommitRequest) -> Any:
    if not may_group(ctx, call, Operation.READ, request.group_id):
        refused = Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return refusal("OffsetCommit", request, refused, call.version)
    refused_rows: list[OffsetCommitResponseTopic] = []
    kept = [t for topic in request.topics if (t := _committable(ctx, call, topic, refused_rows))]
    if not refused_rows:
        return ask_group(ctx, call, "OffsetCommit", request)
    if not kept:
        return OffsetCommitResponse(topics=refused_rows)
    request.topics = kept
    return ask_group(
        ctx, call, "OffsetCommit", request, lambda response: joined(response, refused_rows)
    )


def _committable(
    ctx: GroupContext,
    call: Call,
    topic: OffsetCommitRequestTopic,
    refused_rows: list[OffsetCommitResponseTopic],
) -> OffsetCommitRequestTopic | None:
    """Returns the valid part of a topic with its name; the rest becomes refused rows."""
    code = ErrorCode.NONE
    image = ctx.image
    if call.version >= TOPIC_IDS_SINCE:
        by_id = image.topics_by_id.get(topic.topic_id)
        if by_id is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic.name = by_id.name
    if not code and not may(ctx, call, Operation.READ, topic.name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    known = image.topics.get(topic.name)
    count = len(known.partitions) if known is not None else 0
    good: Sequence[OffsetCommitRequestPartition] = ()
    if not code:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        good = [row for row in topic.partitions if 0 <= row.partition_index < count]
    if len(good) < len(topic.partitions) or not topic.partitions:
        taken = {row.partition_index for row in good}
        refused_rows.append(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=row.partition_index, error_code=code
                    )
                    for row in topic.partitions
                    if row.partition_index not in taken
                ],
            )
        )
        topic.partitions = good
    return topic if good else None


def joined(response: Any, refused_rows: Sequence[Any]) -> Any:
    """Joins the shard's response and the rows that were refused before."""
    topics = list(response.topics)
    for refused in refused_rows:
        for topic in topics:
            if _key(topic) == _key(refused):
                topic.partitions = [*topic.partitions, *refused.partitions]
                break
        else:
            topics.append(refused)
    response.topics = topics
    return response


def _key(topic: Any) -> tuple[str, bytes | None]:
    return topic.name, getattr(topic, "topic_id", None)


# -- OffsetFetch ------------------------------------------------------------------------------


async def offset_fetch(
    ctx: GroupContext, call: Call, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    if call.version >= GROUPS_SINCE:
        asked = [_GroupFetch(ctx, call, group) for group in request.groups[:GROUPS_MAX]]
        replies = await gathered([group.ask(request.require_stable) for group in asked])
        rows = [group.answer(reply) for group, reply in zip(asked, replies, strict=True)]
        return OffsetFetchResponse(groups=rows)
    topics = request.topics
    only = OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in topics
        ],
    )
    asking = _GroupFetch(ctx, call, only)
    (reply,) = await gathered([asking.ask(request.require_stable)])
    return _flat(request, asking.answer(reply), call.version)


def _flat(
    request: OffsetFetchRequest, row: OffsetFetchResponseGroup, version: int
) -> OffsetFetchResponse:
    """Converts one group's response to the format before v8."""
    if row.error_code:
        code = ErrorCode(row.error_code)
        return _whole(refusal("OffsetFetch", request, Refused(code), version))
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=found.partition_index,
                        committed_offset=found.committed_offset,
                        committed_leader_epoch=found.committed_leader_epoch,
                        metadata=found.metadata,
                        error_code=found.error_code,
                    )
                    for found in topic.partitions
                ],
            )
            for topic in row.topics
        ]
    )


def _whole(response: Any) -> OffsetFetchResponse:
    assert isinstance(response, OffsetFetchResponse)
    return response


class _GroupFetch:
    """Request for one group: the part for its shard, and rows that are refused before."""

    def __init__(self, ctx: GroupContext, call: Call, group: OffsetFetchRequestGroup) -> None:
        self._ctx = ctx
        self._call = call
        self._group = group
        self._refused: list[OffsetFetchResponseTopics] = []

    def ask(self, is_stable_required: bool) -> "asyncio.Future[Any] | Refused":
        ctx, call, group = self._ctx, self._call, self._group
        if not may_group(ctx, call, Operation.DESCRIBE, group.group_id):
            return Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if group.topics is not None:
            group.topics = [topic for topic in group.topics if self._may_see(topic)]
        request = OffsetFetchRequest(groups=[group], require_stable=is_stable_required)
        caller = caller_of(ctx, call)

        def decide(shard: GroupShard, token: Token, now_ms: int) -> Decision:
            return shard.handle("OffsetFetch", request, token, caller, now_ms)

        try:
            return ctx.groups.host.ask(group.group_id, decide)
        except Refused as refused:
            return refused

    def _may_see(self, topic: OffsetFetchRequestTopics) -> bool:
        code = ErrorCode.NONE
        if self._call.version >= TOPIC_IDS_SINCE:
            known = self._ctx.image.topics_by_id.get(topic.topic_id)
            if known is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                topic.name = known.name
        if not code and not may(self._ctx, self._call, Operation.DESCRIBE, topic.name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if not code:
            return True
        self._refused.append(
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=NO_OFFSET,
                        metadata="",
                        error_code=code,
                    )
                    for index in topic.partition_indexes
                ],
            )
        )
        return False

    def answer(self, reply: Any) -> OffsetFetchResponseGroup:
        group = self._group
        if isinstance(reply, Refused):
            return OffsetFetchResponseGroup(
                group_id=group.group_id, topics=(), error_code=reply.code
            )
        row: OffsetFetchResponseGroup = reply.groups[0]
        if group.topics is None:
            row.topics = [topic for topic in row.topics if self._is_shown(topic)]
        row.topics = [*row.topics, *self._refused]
        return row

    def _is_shown(self, topic: OffsetFetchResponseTopics) -> bool:
        """True if the caller may see the topic and, with topic ids, if it still exists."""
        if self._call.version >= TOPIC_IDS_SINCE and topic.topic_id == NO_TOPIC_ID:
            return False
        return may(self._ctx, self._call, Operation.DESCRIBE, topic.name)


# -- OffsetDelete -----------------------------------------------------------------------------


def offset_delete(ctx: GroupContext, call: Call, request: OffsetDeleteRequest) -> Any:
    if not may_group(ctx, call, Operation.DELETE, request.group_id):
        refused = Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return refusal("OffsetDelete", request, refused, call.version)
    refused_rows: list[OffsetDeleteResponseTopic] = []
    kept = [t for topic in request.topics if (t := _deletable(ctx, call, topic, refused_rows))]
    if refused_rows and not kept:
        return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=refused_rows)
    request.topics = kept

    def whole(response: Any) -> Any:
        return response if response.error_code else joined(response, refused_rows)

    return ask_group(ctx, call, "OffsetDelete", request, whole)


def _deletable(
    ctx: GroupContext,
    call: Call,
    topic: OffsetDeleteRequestTopic,
    refused_rows: list[OffsetDeleteResponseTopic],
) -> OffsetDeleteRequestTopic | None:
    known = ctx.image.topics.get(topic.name)
    if not may(ctx, call, Operation.READ, topic.name):
        code, count = ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0
    else:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        count = len(known.partitions) if known is not None else 0
    bad = [row for row in topic.partitions if not 0 <= row.partition_index < count]
    if bad:
        refused_rows.append(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=row.partition_index, error_code=code
                    )
                    for row in bad
                ],
            )
        )
        topic.partitions = [row for row in topic.partitions if 0 <= row.partition_index < count]
    return topic if topic.partitions else None
