"""Requests of members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ConsumerGroupHeartbeat,
ShareGroupHeartbeat.

Finds the group, creates it or converts it to the other type where the request requires it, and
delegates. An empty group of either type is converted at once; its generation or epoch is carried
over, so that the number never goes back. Share groups are never converted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.base.errors import ErrorCode, Refused
from penstock.base.state_machine import Token
from penstock.state.groups.call_result import CallResult
from penstock.state.groups.classic import join as joining
from penstock.state.groups.classic import sync_heartbeat_leave
from penstock.state.groups.classic.group import ClassicGroup
from penstock.state.groups.classic.member import EMPTY
from penstock.state.groups.config import GroupCaller
from penstock.state.groups.consumer import classic_members, heartbeat
from penstock.state.groups.consumer.group import LEFT_FOR_NOW, ConsumerGroup
from penstock.state.groups.consumer.pending_change import PendingChange
from penstock.state.groups.consumer_protocol import CONSUMER
from penstock.state.groups.migration import check_upgrade, downgraded, finish_upgrade, upgraded
from penstock.state.groups.queries import check_groups_max
from penstock.state.groups.share import heartbeat as share
from penstock.state.groups.share.group import ShareGroup
from penstock.wire.messages.classic_groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupMemberResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from penstock.state.groups.fencing import Group
    from penstock.state.groups.shard import GroupShard
    from penstock.wire.messages.consumer_groups import ConsumerGroupHeartbeatRequest
    from penstock.wire.messages.share import ShareGroupHeartbeatRequest

LEAVE_SEVERAL_SINCE = 3
SYNC_PROTOCOL_SINCE = 5


def is_over(group: ClassicGroup) -> bool:
    """True if a group has no records, no members and no pending joins."""
    return group.is_void and not group.members and not group.pending


def join(
    shard: GroupShard,
    request: JoinGroupRequest,
    token: Token,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> None:
    joining.check_join(request, shard.config)
    group = shard.groups.get(request.group_id)
    if isinstance(group, ShareGroup):
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"group {group.group_id} is a share group: join it with ShareGroupHeartbeat",
        )
    if isinstance(group, ConsumerGroup) and group.members:
        _join_consumer_group(shard, group, request, token, caller, outcome, now_ms)
        return
    if group is None and request.member_id:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    if isinstance(group, ClassicGroup):
        joining.join(group, request, token, caller, outcome, now_ms)
        return
    check_groups_max(shard, request.group_id)
    made = ClassicGroup(request.group_id, shard.config)
    before = CallResult()
    if group is not None:
        before.records += group.tombstones()
        made.generation, made.since_ms = group.value.epoch, now_ms
        made.protocol_type = CONSUMER
        made.keep(before)
    joining.join(made, request, token, caller, outcome, now_ms)
    outcome.records[:0] = before.records
    shard.groups[request.group_id] = made


def _join_consumer_group(
    shard: GroupShard,
    group: ConsumerGroup,
    request: JoinGroupRequest,
    token: Token,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> None:
    draft = PendingChange(group, shard.topics, shard.patterns)
    response = classic_members.join(draft, request, caller, now_ms)
    if response.error_code == ErrorCode.NONE:
        replaced = [m for m in group.members if m not in draft.members]
        if heartbeat.must_downgrade(draft):
            _downgrade(shard, draft, outcome, now_ms)
        else:
            outcome.records += draft.records()
            for member_id in replaced:
                group.cancel_timers(member_id)
            classic_members.arm_after_join(group, request, response.member_id, now_ms)
    classic_members.answer_join(outcome, token, caller, response)


def _downgrade(shard: GroupShard, draft: PendingChange, outcome: CallResult, now_ms: int) -> None:
    """Replaces the consumer group by a classic one with the same members, and rebalances it."""
    made = downgraded(draft, shard.topics, shard.config, now_ms)
    outcome.records += draft.group.tombstones()
    made.rebalance(outcome, now_ms)
    made.keep(outcome)
    shard.groups[made.group_id] = made


def sync(
    shard: GroupShard,
    request: SyncGroupRequest,
    token: Token,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> None:
    if not request.group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID)
    is_named = request.protocol_type is not None and request.protocol_name is not None
    if caller.api_version >= SYNC_PROTOCOL_SINCE and not is_named:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    group = _known(shard, request.group_id)
    if isinstance(group, ConsumerGroup):
        outcome.reply(token, classic_members.sync(group, request, shard.topics.names, now_ms))
    else:
        sync_heartbeat_leave.sync(group, request, token, caller, outcome, now_ms)


def beat(
    shard: GroupShard,
    request: HeartbeatRequest,
    token: Token,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> None:
    if not request.group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID)
    group = _known(shard, request.group_id)
    answer = (
        classic_members.heartbeat
        if isinstance(group, ConsumerGroup)
        else sync_heartbeat_leave.heartbeat
    )
    outcome.reply(token, answer(group, request, now_ms))  # type: ignore[arg-type]


def _known(shard: GroupShard, group_id: str) -> ClassicGroup | ConsumerGroup:
    group = shard.groups.get(group_id)
    if group is None or isinstance(group, ShareGroup):
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"unknown group {group_id}: join it first")
    return group


def leave(
    shard: GroupShard,
    request: LeaveGroupRequest,
    token: Token,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> None:
    """LeaveGroup; before v3 one member leaves, and its code is the response's."""
    if not request.group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID)
    is_batch = caller.api_version >= LEAVE_SEVERAL_SINCE
    ids = list(request.members) if is_batch else [MemberIdentity(member_id=request.member_id)]
    group = shard.groups.get(request.group_id)
    rows: list[LeaveGroupMemberResponse]
    if group is None or isinstance(group, ShareGroup):
        rows = [_unknown(identity) for identity in ids]
    elif isinstance(group, ClassicGroup):
        rows = sync_heartbeat_leave.leave(group, ids, outcome, now_ms)
    else:
        draft = PendingChange(group, shard.topics, shard.patterns)
        rows = heartbeat.leave_classic(draft, ids)
        _finish_leaving(shard, draft, outcome, now_ms)
    code = ErrorCode.NONE if is_batch else rows[0].error_code
    outcome.reply(token, LeaveGroupResponse(error_code=int(code), members=rows))


def _unknown(identity: MemberIdentity) -> LeaveGroupMemberResponse:
    return LeaveGroupMemberResponse(
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
        error_code=int(ErrorCode.UNKNOWN_MEMBER_ID),
    )


def _finish_leaving(
    shard: GroupShard, draft: PendingChange, outcome: CallResult, now_ms: int
) -> None:
    group = draft.group
    if heartbeat.must_downgrade(draft):
        _downgrade(shard, draft, outcome, now_ms)
        return
    outcome.records += draft.records()
    for member_id in sorted(group.members.keys() - draft.members.keys()):
        group.cancel_timers(member_id)


def consumer_beat(
    shard: GroupShard,
    request: ConsumerGroupHeartbeatRequest,
    token: Token,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> None:
    heartbeat.check_heartbeat(request, caller, shard.config, shard.patterns)
    group = shard.groups.get(request.group_id)
    if isinstance(group, ShareGroup):
        message = f"Group {request.group_id} is not a consumer group."
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, message)
    if request.member_epoch in (heartbeat.LEAVE, LEFT_FOR_NOW):
        draft = PendingChange(_consumer(group, request), shard.topics, shard.patterns)
        response = heartbeat.leave(draft, request)
        _finish_leaving(shard, draft, outcome, now_ms)
        outcome.reply(token, response)
        return
    if isinstance(group, ConsumerGroup):
        quick = heartbeat.beat(group, request, now_ms)
        if quick is not None:
            outcome.reply(token, quick)
            return
        draft = PendingChange(group, shard.topics, shard.patterns)
    elif request.member_epoch != heartbeat.JOIN:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
    else:
        draft = _made(shard, group, request.group_id)
    before = list(draft.group.members)
    if isinstance(group, ClassicGroup):
        outcome.records += group.tombstones()
    outcome.reply(token, heartbeat.heartbeat(draft, request, caller, outcome, now_ms))
    if isinstance(group, ClassicGroup):
        finish_upgrade(group, outcome, now_ms, draft)
    for member_id in before:
        if member_id not in draft.members:
            draft.group.cancel_timers(member_id)
    shard.groups[request.group_id] = draft.group


def _consumer(group: Group | None, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroup:
    if not isinstance(group, ConsumerGroup):
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
    return group


def _made(shard: GroupShard, group: Group | None, group_id: str) -> PendingChange:
    """A new consumer group, or the one that a classic group is upgraded to."""
    if isinstance(group, ClassicGroup) and group.state != EMPTY:
        check_upgrade(group)
        return upgraded(group, shard.topics, shard.patterns)
    if group is None:
        check_groups_max(shard, group_id)
    draft = PendingChange(ConsumerGroup(group_id, shard.config), shard.topics, shard.patterns)
    if isinstance(group, ClassicGroup):
        draft.epoch = draft.assignment_epoch = group.generation
    return draft


def share_beat(
    shard: GroupShard,
    request: ShareGroupHeartbeatRequest,
    token: Token,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> None:
    share.check_heartbeat(request, shard.config)
    group = shard.groups.get(request.group_id)
    if group is None and request.member_epoch == share.JOIN:
        if shard.offsets.committed.get(request.group_id):
            # A commit without membership makes a group of the other kind, as in Kafka.
            raise Refused(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a share group."
            )
        check_groups_max(shard, request.group_id)
        group = ShareGroup(request.group_id, shard.config)
    if not isinstance(group, ShareGroup):
        what = "not found" if group is None else "is not a share group"
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} {what}.")
    if request.member_epoch == share.LEAVE:
        outcome.reply(token, share.leave(group, request, shard.topics, outcome))
        return
    if request.is_declaration:
        outcome.reply(token, share.declare(group, request, shard.topics, outcome))
        shard.groups[request.group_id] = group
        return
    outcome.reply(token, share.beat(group, request, shard.topics, caller, outcome, now_ms))
    shard.groups[request.group_id] = group


def tick(shard: GroupShard, group: Group, outcome: CallResult, now_ms: int) -> None:
    if isinstance(group, ClassicGroup):
        sync_heartbeat_leave.tick(group, outcome, now_ms)
        return
    if isinstance(group, ShareGroup):
        share.tick(group, shard.topics, outcome, now_ms)
        return
    late = heartbeat.due_members(group, now_ms)
    if late:
        draft = PendingChange(group, shard.topics, shard.patterns)
        heartbeat.remove(draft, late)
        _finish_leaving(shard, draft, outcome, now_ms)


MemberHandler = Callable[["GroupShard", Any, Token, GroupCaller, CallResult, int], None]

HANDLERS: Final[dict[str, MemberHandler]] = {
    "JoinGroup": join,
    "SyncGroup": sync,
    "Heartbeat": beat,
    "LeaveGroup": leave,
    "ConsumerGroupHeartbeat": consumer_beat,
    "ShareGroupHeartbeat": share_beat,
}
