"""Group requests that change no membership: offsets, listings, descriptions, deletion.

A group that only has committed offsets counts as an empty classic group without a protocol, as
Kafka's "simple" groups do; no object is kept for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.base.errors import ErrorCode, Refused, shortened
from penstock.base.fair_scheduler import Steps, run_to_end
from penstock.state.groups import offsets
from penstock.state.groups.call_result import CallResult
from penstock.state.groups.classic.group import ClassicGroup
from penstock.state.groups.classic.member import EMPTY, PREPARING, STABLE
from penstock.state.groups.config import GroupCaller
from penstock.state.groups.consumer.group import ConsumerGroup
from penstock.state.groups.descriptions import (
    described_classic,
    described_consumer,
    is_listed,
    listed,
    missing_classic,
    missing_consumer,
)
from penstock.state.groups.fencing import (
    CONSUMER_COMMIT_SINCE,
    Group,
    check_commit,
    check_fetch,
    check_group_delete,
    check_offset_delete,
    is_subscribed,
)
from penstock.state.groups.records import ConsumerMemberValue
from penstock.wire.messages.classic_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from penstock.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from penstock.state.groups.shard import GroupShard
    from penstock.wire.messages.transactions import TxnOffsetCommitRequest


def find(shard: GroupShard, group_id: str) -> Group | None:
    """Returns the group, or the simple group implied by its committed offsets."""
    group = shard.groups.get(group_id)
    if group is None and shard.offsets.has(group_id):
        return ClassicGroup(group_id, shard.config)
    return group


def check_groups_max(shard: GroupShard, group_id: str) -> None:
    """Raises Refused if the shard has as many groups as it may have."""
    size = max(len(shard.groups), len(shard.offsets.committed))
    if find(shard, group_id) is None and size >= shard.config.groups_max:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"cannot create group {group_id}: this shard already has {size} groups",
        )


def subscribed_topics(shard: GroupShard, group: Group) -> frozenset[str]:
    """Topics that the members of a consumer group subscribe to, including missing ones."""
    if isinstance(group, ClassicGroup):
        return frozenset()
    names: set[str] = set()
    for member in group.members.values():
        names.update(member.topics)
        if isinstance(member, ConsumerMemberValue):
            host = member.client_host
            names |= shard.patterns.matching(member.regex, member.principal, host)
    return frozenset(names)


def is_deletable(group: Group) -> bool:
    if isinstance(group, ClassicGroup) and group.pending:
        return False
    return group.state == EMPTY


def commit(
    shard: GroupShard,
    request: OffsetCommitRequest,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> Any:
    epoch = request.generation_id_or_member_epoch
    group = find(shard, request.group_id)
    if group is None:
        if epoch >= 0:
            is_told = caller.api_version >= CONSUMER_COMMIT_SINCE
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND if is_told else ErrorCode.ILLEGAL_GENERATION)
        check_groups_max(shard, request.group_id)
        group = ClassicGroup(request.group_id, shard.config)
    member_id, instance_id = request.member_id, request.group_instance_id
    check_commit(group, member_id, instance_id, epoch, caller.api_version, False)
    if isinstance(group, ClassicGroup) and group.state in (STABLE, PREPARING):
        member = group.members.get(member_id)
        if member is not None:
            group.extend_session(member, now_ms)
    bytes_max = shard.config.offset_metadata_bytes_max
    return offsets.commit(shard.offsets, request, shard.topics, bytes_max, outcome, now_ms)


def commit_pending(
    shard: GroupShard,
    request: TxnOffsetCommitRequest,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> Any:
    if not request.group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID)
    group = find(shard, request.group_id)
    if group is None:
        if request.generation_id >= 0:
            raise Refused(ErrorCode.ILLEGAL_GENERATION)
        check_groups_max(shard, request.group_id)
        group = ClassicGroup(request.group_id, shard.config)
    check_commit(
        group,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        caller.api_version,
        True,
    )
    bytes_max = shard.config.offset_metadata_bytes_max
    records, response = offsets.commit_pending(
        shard.offsets, request, shard.topics, bytes_max, now_ms
    )
    outcome.records += records
    return response


def fetch(
    shard: GroupShard,
    request: OffsetFetchRequest,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> OffsetFetchResponse:
    if request.groups:
        groups = [
            run_to_end(fetch_group(shard, asked, request.require_stable))
            for asked in request.groups
        ]
        return OffsetFetchResponse(groups=groups)
    wanted = request.topics
    found = run_to_end(
        offsets.fetch(
            shard.offsets,
            request.group_id,
            None if wanted is None else ((t.name, None, t.partition_indexes) for t in wanted),
            request.require_stable,
            shard.topics,
        )
    )
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=row.partition_index,
                        committed_offset=row.committed_offset,
                        committed_leader_epoch=row.committed_leader_epoch,
                        metadata=row.metadata,
                        error_code=row.error_code,
                    )
                    for row in topic.partitions
                ],
            )
            for topic in found
        ]
    )


def fetch_group(
    shard: GroupShard, asked: OffsetFetchRequestGroup, is_stable_required: bool
) -> Steps[OffsetFetchResponseGroup]:
    """Returns the offsets of one group as they are now, in steps that may run later."""
    group = find(shard, asked.group_id)
    try:
        if group is not None:
            check_fetch(group, asked.member_id, asked.member_epoch)
    except Refused as refused:
        return _fetched(asked.group_id, (), int(refused.code))
    wanted = asked.topics
    topics = offsets.fetch(
        shard.offsets,
        asked.group_id,
        None if wanted is None else [(t.name, t.topic_id, t.partition_indexes) for t in wanted],
        is_stable_required,
        shard.topics,
    )
    return _fetched(asked.group_id, topics, int(ErrorCode.NONE))


def _fetched(
    group_id: str, topics: Steps[list[OffsetFetchResponseTopics]] | tuple[()], code: int
) -> Steps[OffsetFetchResponseGroup]:
    rows = (yield from topics) if topics else ()
    return OffsetFetchResponseGroup(group_id=group_id, topics=rows, error_code=code)


def delete_offsets(
    shard: GroupShard,
    request: OffsetDeleteRequest,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> Any:
    if not request.group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID)
    group = find(shard, request.group_id)
    if group is None:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND)
    check_offset_delete(group)
    subscribed = subscribed_topics(shard, group)
    records, response = offsets.delete(
        shard.offsets, request, lambda topic: is_subscribed(group, topic, subscribed)
    )
    outcome.records += records
    return response


def list_groups(
    shard: GroupShard,
    request: ListGroupsRequest,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> ListGroupsResponse:
    rows = run_to_end(listed_groups(shard, request))
    return ListGroupsResponse(error_code=int(ErrorCode.NONE), groups=rows)


def listed_groups(shard: GroupShard, request: ListGroupsRequest) -> Steps[list[ListedGroup]]:
    """Returns the groups that there are now, in steps that may run later.

    Their states are those at that time; a group that was deleted meanwhile is left out.
    """
    group_ids = sorted(shard.groups.keys() | shard.offsets.group_ids())
    return _listed_groups(shard, request, group_ids)


def _listed_groups(
    shard: GroupShard, request: ListGroupsRequest, group_ids: Sequence[str]
) -> Steps[list[ListedGroup]]:
    rows = []
    for group_id in group_ids:
        yield
        group = find(shard, group_id)
        if group is not None and is_listed(group, request.states_filter, request.types_filter):
            rows.append(listed(group))
    return rows


def describe(
    shard: GroupShard,
    request: DescribeGroupsRequest,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> DescribeGroupsResponse:
    rows = []
    for group_id in request.groups:
        group = find(shard, group_id)
        if isinstance(group, ClassicGroup):
            rows.append(described_classic(group))
            continue
        what = "not found" if group is None else "not a classic group"
        message = f"Group {group_id} is {what}." if group else f"Group {group_id} {what}."
        rows.append(missing_classic(group_id, shortened(message), caller.api_version))
    return DescribeGroupsResponse(groups=rows)


def describe_consumer(
    shard: GroupShard,
    request: ConsumerGroupDescribeRequest,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> ConsumerGroupDescribeResponse:
    rows = []
    for group_id in request.group_ids:
        group = find(shard, group_id)
        if isinstance(group, ConsumerGroup):
            rows.append(described_consumer(group, shard.topics, shard.patterns))
        elif group is None:
            rows.append(missing_consumer(group_id, shortened(f"Group {group_id} not found.")))
        else:
            message = shortened(f"Group {group_id} is not a consumer group.")
            rows.append(missing_consumer(group_id, message))
    return ConsumerGroupDescribeResponse(groups=rows)


def delete_groups(
    shard: GroupShard,
    request: DeleteGroupsRequest,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> DeleteGroupsResponse:
    rows = []
    for group_id in dict.fromkeys(request.groups_names):
        code = ErrorCode.NONE
        group = find(shard, group_id)
        try:
            if group is None:
                raise Refused(ErrorCode.GROUP_ID_NOT_FOUND)
            check_group_delete(group)
            outcome.records += offsets.forget_all(shard.offsets, group_id)
            outcome.records += group.tombstones()
        except Refused as refused:
            code = refused.code
        rows.append(DeletableGroupResult(group_id=group_id, error_code=int(code)))
    return DeleteGroupsResponse(results=rows)


QueryHandler = Callable[["GroupShard", Any, GroupCaller, CallResult, int], Any]

HANDLERS: Final[dict[str, QueryHandler]] = {
    "OffsetCommit": commit,
    "TxnOffsetCommit": commit_pending,
    "OffsetFetch": fetch,
    "OffsetDelete": delete_offsets,
    "ListGroups": list_groups,
    "DescribeGroups": describe,
    "ConsumerGroupDescribe": describe_consumer,
    "DeleteGroups": delete_groups,
}
