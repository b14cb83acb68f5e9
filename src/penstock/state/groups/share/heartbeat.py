"""ShareGroupHeartbeat (api 76), version 1, and administrative changes of a share group.

Epoch 0 joins, a positive one stays, -1 leaves. A null field means "unchanged". The client
generates its member id. The response carries the group's epoch, and the assignment whenever the
member's epoch differs, so a lost response is simply repeated.

A declaration makes a group known that reads without members, as gateways do; it changes no member.

A new epoch begins when a member joins or leaves, when a subscription changes, and when a subscribed
topic changes.
"""

from collections.abc import Iterable, Mapping

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.base.state_machine import Record
from penstock.state.groups.call_result import CallResult
from penstock.state.groups.config import GroupCaller, GroupConfig, TopicCatalogue
from penstock.state.groups.records import (
    Owned,
    RecordKind,
    ShareGroupValue,
    ShareMemberValue,
    encode,
    group_key,
    member_key,
)
from penstock.state.groups.share.group import ShareGroup, assignments, subscribed, topics_hash
from penstock.wire.messages.share import (
    ShareGroupHeartbeatAssignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareGroupHeartbeatTopicPartitions,
)

JOIN = 0
LEAVE = -1


def check_heartbeat(request: ShareGroupHeartbeatRequest, config: GroupConfig) -> None:
    """Checks that do not depend on the group."""
    _require(request.group_id.strip(), "GroupId can't be empty.")
    _require(request.member_id.strip(), "MemberId can't be empty.")
    _require(request.rack_id is None or request.rack_id.strip(), "RackId can't be empty.")
    _require(request.member_epoch >= LEAVE, "MemberEpoch is invalid.")
    names = request.subscribed_topic_names
    if request.member_epoch == JOIN:
        _require(names, "SubscribedTopicNames must be set in first request.")
    _require(len(names or ()) <= config.subscribed_topics_max, "Too many topics.")


def _require(is_met: object, message: str) -> None:
    if not is_met:
        raise Refused(ErrorCode.INVALID_REQUEST, message)


def beat(
    group: ShareGroup,
    request: ShareGroupHeartbeatRequest,
    topics: TopicCatalogue,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> ShareGroupHeartbeatResponse:
    """Handles a heartbeat that joins or stays."""
    member_id, epoch = request.member_id, request.member_epoch
    member = group.members.get(member_id)
    if member is None:
        if epoch != JOIN:
            raise Refused(
                ErrorCode.UNKNOWN_MEMBER_ID, f"unknown member {member_id}: rejoin the group"
            )
        if len(group.members) >= group.config.share_group_size_max:
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {len(group.members)} "
                "members.",
            )
    elif epoch > group.value.epoch:
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"member epoch {epoch} is ahead of the group's {group.value.epoch}: rejoin",
        )
    updated = _updated(member, request, caller)
    members = {**group.members, member_id: updated}
    value = group.value
    is_changed = member is None or member.topics != updated.topics
    if is_changed or group.is_stale:
        value = _next_value(group, members, topics, is_changed)
    if updated != member:
        key = member_key(RecordKind.SHARE_MEMBER, group.group_id, member_id)
        outcome.keep(key, encode(updated))
    if value != group.kept:
        outcome.keep(group_key(RecordKind.SHARE_GROUP, group.group_id), encode(value))
    group.is_stale = False
    group.timers.set(member_id, now_ms + group.settings.session_timeout_ms)
    group.told[member_id] = value.epoch
    owned: Owned | None = None
    if epoch == value.epoch:
        pass  # The member already has this assignment.
    elif value.epoch == group.value.epoch:
        owned = group.assignment(member_id, topics)
    else:
        owned = assignments(members, topics).get(member_id, ())
    return _response(group, member_id, value.epoch, owned)


def declare(
    group: ShareGroup,
    request: ShareGroupHeartbeatRequest,
    topics: TopicCatalogue,
    outcome: CallResult,
) -> ShareGroupHeartbeatResponse:
    """Keeps that the group exists and reads these topics; members stay as they are."""
    names = request.subscribed_topic_names or ()
    outcome.records += with_topics(
        group, [topics.by_name[name][0] for name in names if name in topics.by_name]
    )
    return _response(group, request.member_id, group.value.epoch, None)


def _updated(
    member: ShareMemberValue | None, request: ShareGroupHeartbeatRequest, caller: GroupCaller
) -> ShareMemberValue:
    names = request.subscribed_topic_names
    topics = tuple(sorted(set(names))) if names is not None else ()
    if member is None:
        return ShareMemberValue(request.rack_id, caller.client_id, caller.client_host, topics)
    return ShareMemberValue(
        request.rack_id or member.rack_id,
        caller.client_id,
        caller.client_host,
        member.topics if names is None else topics,
    )


def _next_value(
    group: ShareGroup,
    members: Mapping[str, ShareMemberValue],
    topics: TopicCatalogue,
    must_bump: bool,
) -> ShareGroupValue:
    """Group value after a change of members or topics."""
    value = group.value
    names = subscribed(members.values(), topics)
    shape = topics_hash(names, topics)
    read = sorted({*value.topics, *(topics.by_name[name][0] for name in names)})
    epoch = value.epoch + (must_bump or shape != value.topics_hash)
    return ShareGroupValue(epoch, shape, tuple(read))


def leave(
    group: ShareGroup,
    request: ShareGroupHeartbeatRequest,
    topics: TopicCatalogue,
    outcome: CallResult,
) -> ShareGroupHeartbeatResponse:
    group.check_member(request.member_id)
    remove(group, [request.member_id], topics, outcome)
    return ShareGroupHeartbeatResponse(
        error_code=int(ErrorCode.NONE),
        member_id=request.member_id,
        member_epoch=LEAVE,
        heartbeat_interval_ms=0,
    )


def remove(
    group: ShareGroup, member_ids: Iterable[str], topics: TopicCatalogue, outcome: CallResult
) -> None:
    """Removes members that left or timed out; all of one call in one new epoch."""
    members = dict(group.members)
    for member_id in member_ids:
        del members[member_id]
        group.timers.cancel(member_id)
        outcome.keep(member_key(RecordKind.SHARE_MEMBER, group.group_id, member_id), None)
    value = _next_value(group, members, topics, must_bump=True)
    outcome.keep(group_key(RecordKind.SHARE_GROUP, group.group_id), encode(value))


def tick(group: ShareGroup, topics: TopicCatalogue, outcome: CallResult, now_ms: int) -> None:
    late = [member_id for member_id in group.timers.take_due(now_ms) if member_id in group.members]
    if late:
        remove(group, late, topics, outcome)


def without_topics(group: ShareGroup, gone: Iterable[bytes]) -> list[Record]:
    """Records that the group has no delivery state in these topics any more."""
    value = group.value
    left = tuple(topic_id for topic_id in value.topics if topic_id not in set(gone))
    if left == value.topics:
        return []
    kept = ShareGroupValue(value.epoch, value.topics_hash, left)
    return [(group_key(RecordKind.SHARE_GROUP, group.group_id), encode(kept))]


def with_topics(group: ShareGroup, more: Iterable[bytes]) -> list[Record]:
    """Records that the group has delivery state in these topics."""
    value = group.value
    topics = tuple(sorted({*value.topics, *more}))
    if group.kept is not None and topics == value.topics:
        return []
    kept = ShareGroupValue(value.epoch, value.topics_hash, topics)
    return [(group_key(RecordKind.SHARE_GROUP, group.group_id), encode(kept))]


def _response(
    group: ShareGroup, member_id: str, epoch: int, owned: Owned | None
) -> ShareGroupHeartbeatResponse:
    assignment = None
    if owned is not None:
        assignment = ShareGroupHeartbeatAssignment(
            topic_partitions=[
                ShareGroupHeartbeatTopicPartitions(topic_id=TopicId(topic_id), partitions=rows)
                for topic_id, rows in owned
            ]
        )
    return ShareGroupHeartbeatResponse(
        error_code=int(ErrorCode.NONE),
        member_id=member_id,
        member_epoch=epoch,
        heartbeat_interval_ms=group.settings.heartbeat_interval_ms,
        assignment=assignment,
    )
