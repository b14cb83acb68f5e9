"""JoinGroup (api 11), versions 0-9, for a classic group.

From v4 a member without an id is given one and told to join again with it. v5 has static members:
a known instance id replaces the member that had it, without a rebalance if the group is stable and
its protocol stays. v9 tells a replaced leader to skip the assignment.

A cooperative member that was told to revoke partitions joins again so that the leader can assign
them. If its instance is replaced before that, the new one does not know: Kafka leaves the
partitions without an owner until the next rebalance, and here the replacement is that rebalance.

All checks come first: a refusal changes nothing.
"""

from penstock.base.errors import ErrorCode, Refused
from penstock.base.state_machine import Token
from penstock.state.groups.call_result import CallResult
from penstock.state.groups.classic.group import ClassicGroup
from penstock.state.groups.classic.member import (
    COMPLETING,
    EMPTY,
    PREPARING,
    STABLE,
    ClassicMember,
    Wait,
    for_version,
    join_error,
    protocols_of,
    rebalance_timeout_of,
    session_timer,
    sync_error,
)
from penstock.state.groups.config import GroupCaller, GroupConfig
from penstock.state.groups.records import ClassicMemberValue
from penstock.wire.messages.classic_groups import JoinGroupRequest

MEMBER_ID_REQUIRED_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9


def check_join(request: JoinGroupRequest, config: GroupConfig) -> None:
    """Checks that do not depend on the group."""
    if not request.group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID)
    timeout_ms = request.session_timeout_ms
    if not config.session_timeout_ms_min <= timeout_ms <= config.session_timeout_ms_max:
        raise Refused(ErrorCode.INVALID_SESSION_TIMEOUT)
    size = sum(len(p.name) + len(p.metadata) for p in request.protocols)
    if size > config.member_metadata_bytes_max:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"member metadata has {size} bytes: at most {config.member_metadata_bytes_max}",
        )


def join(
    group: ClassicGroup,
    request: JoinGroupRequest,
    token: Token,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> None:
    """Answers at once, or keeps the token until the generation begins."""
    if not _has_capacity(group, request.member_id):
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED)
    names = [protocol.name for protocol in request.protocols]
    if not group.speaks(request.protocol_type, names):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    wait = Wait(token, caller.api_version)
    if request.member_id:
        _join_known(group, request, wait, caller, outcome, now_ms)
        return
    instance_id = request.group_instance_id
    member_id = f"{caller.client_id if instance_id is None else instance_id}-{caller.fresh_id}"
    if instance_id is not None and instance_id in group.statics:
        _replace_static(group, request, member_id, wait, outcome, now_ms)
    elif instance_id is None and caller.api_version >= MEMBER_ID_REQUIRED_SINCE:
        group.pending[member_id] = None
        group.timers.set(session_timer(member_id), now_ms + request.session_timeout_ms)
        response = join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        outcome.reply(token, for_version(response, caller.api_version))
    else:
        _add(group, request, member_id, wait, caller, outcome, now_ms)


def _has_capacity(group: ClassicGroup, member_id: str) -> bool:
    """True if the member fits; a member that is in stays, and during a rebalance the first to
    join are in."""
    size_max = group.config.group_size_max
    member = group.members.get(member_id)
    if member_id in group.pending:
        return len(group.members) < size_max
    if group.state == PREPARING:
        is_in = member is not None and member.join is not None
        return is_in or group.count_joined() + len(group.pending) < size_max
    return member is not None or len(group.members) + len(group.pending) < size_max


def _join_known(
    group: ClassicGroup,
    request: JoinGroupRequest,
    wait: Wait,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> None:
    if request.member_id in group.pending and request.group_instance_id is None:
        _add(group, request, request.member_id, wait, caller, outcome, now_ms)
        return
    member = group.check_member(request.member_id, request.group_instance_id)
    is_same = member.value.protocols == protocols_of(request)
    is_leader = member.member_id == group.leader
    if group.state == COMPLETING and is_same:
        members = group.roster() if is_leader else []
        group.extend_session(member, now_ms)
        response = group.joined_response(member, members)
        outcome.reply(wait.token, for_version(response, wait.api_version))
    elif group.state == STABLE and is_same and not is_leader:
        group.extend_session(member, now_ms)
        response = group.joined_response(member, [])
        outcome.reply(wait.token, for_version(response, wait.api_version))
    else:
        _update(member, request, wait, outcome)
        group.rebalance_or_complete(outcome, now_ms)


def _update(
    member: ClassicMember, request: JoinGroupRequest, wait: Wait, outcome: CallResult
) -> None:
    """Updates a (re)joining member; its earlier JoinGroup that still waits is refused."""
    member.answer_join(outcome, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    value = member.value
    member.value = ClassicMemberValue(
        value.instance_id,
        value.client_id,
        value.client_host,
        rebalance_timeout_of(request),
        request.session_timeout_ms,
        protocols_of(request),
        value.assignment,
    )
    member.join = wait


def _add(
    group: ClassicGroup,
    request: JoinGroupRequest,
    member_id: str,
    wait: Wait,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> None:
    value = ClassicMemberValue(
        request.group_instance_id,
        caller.client_id,
        caller.client_host,
        rebalance_timeout_of(request),
        request.session_timeout_ms,
        protocols_of(request),
        b"",
    )
    member = ClassicMember(member_id, value, is_new=True, join=wait)
    if group.state == PREPARING and group.is_first_rebalance:
        group.has_new_member = True
    if group.state == EMPTY:
        group.protocol_type = request.protocol_type
    group.add(member, now_ms, group.config.new_member_join_timeout_ms)
    group.rebalance_or_complete(outcome, now_ms)


def _replace_static(
    group: ClassicGroup,
    request: JoinGroupRequest,
    member_id: str,
    wait: Wait,
    outcome: CallResult,
    now_ms: int,
) -> None:
    """Replaces a static member that came back under a new member id; the old id is fenced."""
    instance_id = request.group_instance_id
    assert instance_id is not None
    leader_before = group.leader
    old = group.members[group.statics[instance_id]]
    old.answer_join(outcome, join_error(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
    old.answer_sync(outcome, sync_error(ErrorCode.FENCED_INSTANCE_ID))
    was_leader = group.leader == old.member_id
    must_rejoin = group.has_revoked(old)
    group.remove(old.member_id, outcome)
    member = ClassicMember(member_id, old.value)
    _update(member, request, wait, outcome)
    group.add(member, now_ms, member.value.session_timeout_ms)
    if was_leader:
        group.leader = member_id
    is_settled = group.state == STABLE and not must_rejoin
    if is_settled and group.select_protocol() == group.protocol:
        _resume(group, member, leader_before, outcome)
    elif group.state == COMPLETING:
        group.rebalance(outcome, now_ms)
    else:
        group.rebalance_or_complete(outcome, now_ms)


def _resume(
    group: ClassicGroup, member: ClassicMember, leader_before: str | None, outcome: CallResult
) -> None:
    """Continues the generation; tells a leader not to assign, in a form that its version knows.

    Before v9 the response carries the old leader's id, so that the member is not the leader.
    """
    assert member.join is not None
    group.keep(outcome)
    if member.join.api_version >= SKIP_ASSIGNMENT_SINCE:
        is_leader = group.leader == member.member_id
        members = group.roster() if is_leader else []
        response = group.joined_response(member, members, skip_assignment=is_leader)
    else:
        response = group.joined_response(member, [], leader=leader_before)
    member.answer_join(outcome, response)
