"""SyncGroup (api 14), Heartbeat (12), LeaveGroup (13) and timers, for a classic group.

A member that waits in a join or a sync needs no heartbeat, unless it has never finished a join.
"""

from typing import Final

from penstock.base.errors import ErrorCode, Refused
from penstock.base.state_machine import Token
from penstock.state.groups.call_result import CallResult
from penstock.state.groups.classic.group import ClassicGroup
from penstock.state.groups.classic.member import (
    COMPLETING,
    EMPTY,
    JOIN_TIMER,
    PREPARING,
    STABLE,
    SYNC_TIMER,
    ClassicMember,
    Wait,
    sync_error,
)
from penstock.state.groups.config import GroupCaller
from penstock.state.groups.records import ClassicMemberValue
from penstock.wire.messages.classic_groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    LeaveGroupMemberResponse,
    MemberIdentity,
    SyncGroupRequest,
)

_NONE: Final = int(ErrorCode.NONE)
_REBALANCING: Final = int(ErrorCode.REBALANCE_IN_PROGRESS)


def sync(
    group: ClassicGroup,
    request: SyncGroupRequest,
    token: Token,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> None:
    """Answers with the assignment, or keeps the token until the leader has sent it."""
    if group.state == EMPTY:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise Refused(ErrorCode.ILLEGAL_GENERATION)
    if request.protocol_type not in (None, group.protocol_type) or (
        request.protocol_name not in (None, group.protocol)
    ):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state == PREPARING:
        raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)
    group.synced(member.member_id)
    if group.state == STABLE:
        group.extend_session(member, now_ms)
        outcome.reply(token, group.assigned_response(member))
        return
    assert group.state == COMPLETING
    member.answer_sync(outcome, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync = Wait(token, caller.api_version)
    if member.member_id == group.leader:
        given = {a.member_id: bytes(a.assignment) for a in request.assignments}
        _assign(group, given, outcome, now_ms)


def _assign(group: ClassicGroup, given: dict[str, bytes], outcome: CallResult, now_ms: int) -> None:
    for member in group.members.values():
        member.value = _with_assignment(member.value, given.get(member.member_id, b""))
    group.state = STABLE
    group.keep(outcome)
    for member in group.members.values():
        if member.sync is not None:
            member.answer_sync(outcome, group.assigned_response(member))
            group.extend_session(member, now_ms)


def _with_assignment(value: ClassicMemberValue, assignment: bytes) -> ClassicMemberValue:
    return ClassicMemberValue(
        value.instance_id,
        value.client_id,
        value.client_host,
        value.rebalance_timeout_ms,
        value.session_timeout_ms,
        value.protocols,
        assignment,
    )


def heartbeat(group: ClassicGroup, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise Refused(ErrorCode.ILLEGAL_GENERATION)
    group.extend_session(member, now_ms)
    code = _REBALANCING if group.state == PREPARING else _NONE
    return HeartbeatResponse(error_code=code)


def leave(
    group: ClassicGroup, leaving: list[MemberIdentity], outcome: CallResult, now_ms: int
) -> list[LeaveGroupMemberResponse]:
    """Removes members one by one; each has its own result."""
    rows = []
    has_left = False
    for identity in leaving:
        try:
            group.remove(_leaving_id(group, identity), outcome)
            has_left, code = True, ErrorCode.NONE
        except Refused as refused:
            code = refused.code
        rows.append(
            LeaveGroupMemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=int(code),
            )
        )
    if has_left:
        after_removal(group, outcome, now_ms)
    return rows


def _leaving_id(group: ClassicGroup, identity: MemberIdentity) -> str:
    instance_id = identity.group_instance_id
    if not identity.member_id:
        if instance_id is None or instance_id not in group.statics:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        return group.statics[instance_id]
    if identity.member_id in group.pending:
        return identity.member_id
    return group.check_member(identity.member_id, instance_id).member_id


def after_removal(group: ClassicGroup, outcome: CallResult, now_ms: int) -> None:
    """Continues the generation, or rebalances, after members have been removed."""
    if group.state in (STABLE, COMPLETING):
        group.rebalance(outcome, now_ms)
    elif group.state == PREPARING and not group.members and not group.pending:
        # The last member left while the first rebalance still waited for more.
        group.begin_generation(outcome, now_ms)
    else:
        group.complete_if_all_joined(outcome, now_ms)


def tick(group: ClassicGroup, outcome: CallResult, now_ms: int) -> None:
    """Handles ended sessions and expired joins and syncs."""
    for kind, member_id in group.timers.take_due(now_ms):
        if (kind, member_id) in group.timers.at:
            continue  # Set again by an earlier one's effect: a rebalance renews sessions.
        if (kind, member_id) == JOIN_TIMER:
            if group.state == PREPARING:
                group.join_timer_fired(outcome, now_ms)
        elif (kind, member_id) == SYNC_TIMER:
            _end_syncs(group, outcome, now_ms)
        else:
            _end_session(group, member_id, outcome, now_ms)


def _end_session(group: ClassicGroup, member_id: str, outcome: CallResult, now_ms: int) -> None:
    member = group.members.get(member_id)
    if member is not None and not member.is_new and _is_waiting(member):
        return
    if member is not None or member_id in group.pending:
        was_pending = member is None
        group.remove(member_id, outcome)
        if not was_pending or group.state == PREPARING:
            after_removal(group, outcome, now_ms)


def _is_waiting(member: ClassicMember) -> bool:
    return member.join is not None or member.sync is not None


def _end_syncs(group: ClassicGroup, outcome: CallResult, now_ms: int) -> None:
    late = list(group.pending_sync)
    if group.state not in (COMPLETING, STABLE) or not late:
        return
    for member_id in late:
        group.remove(member_id, outcome)
    group.rebalance(outcome, now_ms)
