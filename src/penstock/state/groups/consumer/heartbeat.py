"""ConsumerGroupHeartbeat (api 68), versions 0-1.

Epoch 0 joins, a positive one stays, -1 leaves, -2 leaves temporarily (static members). A known
member that joins again has lost its state: it gets its epoch and assignment as they are, and owns
nothing of what it was asked to revoke. A null field means "unchanged". v1 has regular expressions,
and requires the client to generate its member id.

The response carries the assignment when it changed, and when the request was a full one.

Removal of members from a consumer group: by leaving, session timeout, or late revocation. All
members removed by one call are removed in one draft and one new epoch. If the last member of the
consumer protocol leaves and only classic ones stay, the group is downgraded to a classic one
(`migration`); the shard decides that.
"""

from typing import Final

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.state.groups.call_result import CallResult
from penstock.state.groups.config import ConsumerGroupConfig, GroupCaller, GroupConfig
from penstock.state.groups.consumer.group import LEFT_FOR_NOW, ConsumerGroup
from penstock.state.groups.consumer.pending_change import PendingChange
from penstock.state.groups.consumer.reconciliation import (
    MEMBER_STABLE,
    UNRELEASED,
    UNREVOKED,
    Slot,
    flat,
)
from penstock.state.groups.records import ConsumerMemberValue, CurrentValue
from penstock.state.groups.topic_regex import Patterns
from penstock.wire.messages.classic_groups import LeaveGroupMemberResponse, MemberIdentity
from penstock.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)


def leave(
    draft: PendingChange, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Leaves the group: epochs -1 and -2 of ConsumerGroupHeartbeat."""
    member_id = request.member_id
    draft.group.check_member(member_id, request.instance_id)
    if request.member_epoch == LEFT_FOR_NOW:
        current = draft.current(member_id)
        draft.currents[member_id] = CurrentValue(
            LEFT_FOR_NOW, LEFT_FOR_NOW, current.state, current.assigned, ()
        )
    else:
        remove(draft, [member_id])
    return ConsumerGroupHeartbeatResponse(
        error_code=int(ErrorCode.NONE),
        member_id=member_id,
        member_epoch=request.member_epoch,
        heartbeat_interval_ms=0,
    )


def leave_classic(
    draft: PendingChange, leaving: list[MemberIdentity]
) -> list[LeaveGroupMemberResponse]:
    """Removes members that speak the classic protocol (LeaveGroup)."""
    rows, gone = [], []
    for identity in leaving:
        member_id = identity.member_id
        try:
            member_id = _leaving_id(draft, identity)
            if member_id not in gone:
                gone.append(member_id)
            code = ErrorCode.NONE
        except Refused as refused:
            code = refused.code
        rows.append(
            LeaveGroupMemberResponse(
                member_id=member_id,
                group_instance_id=identity.group_instance_id,
                error_code=int(code),
            )
        )
    if gone:
        remove(draft, gone)
    return rows


def _leaving_id(draft: PendingChange, identity: MemberIdentity) -> str:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if not member_id and instance_id is not None:
        member_id = draft.group.statics.get(instance_id, "")
    member = draft.group.check_member(member_id, instance_id)
    if member.embedded is None:
        raise Refused(
            ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id} does not use the classic protocol"
        )
    return member_id


def remove(draft: PendingChange, member_ids: list[str]) -> None:
    """Removes members; their partitions are free at once."""
    for member_id in member_ids:
        draft.remove(member_id)
    draft.refresh(must_bump=True)


def due_members(group: ConsumerGroup, now_ms: int) -> list[str]:
    """Members whose session, revocation, join or sync has timed out; each once, in order."""
    due = dict.fromkeys(member_id for _, member_id in group.timers.take_due(now_ms))
    return [member_id for member_id in due if member_id in group.members]


def must_downgrade(draft: PendingChange) -> bool:
    """True if the draft removes the last consumer-protocol member and leaves only classic ones."""
    group = draft.group
    had = any(member.embedded is None for member in group.members.values())
    return (
        group.config.can_downgrade
        and had
        and bool(draft.members)
        and all(member.embedded is not None for member in draft.members.values())
    )


JOIN = 0
LEAVE = -1
CLIENT_MADE_IDS_SINCE = 1
UNRELEASED_MS: Final = 500
"""Heartbeat interval of a member that waits for partitions which others are revoking."""

_NONE: Final = int(ErrorCode.NONE)

UNKNOWN = ConsumerMemberValue(None, None, "", "", -1, (), "", None, None)


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest,
    caller: GroupCaller,
    config: GroupConfig,
    patterns: Patterns,
) -> None:
    """Checks that do not depend on the group."""
    _require(request.group_id.strip(), "GroupId can't be empty.")
    _require(
        request.instance_id is None or request.instance_id.strip(), "InstanceId can't be empty."
    )
    _require(request.rack_id is None or request.rack_id.strip(), "RackId can't be empty.")
    epoch = request.member_epoch
    if epoch != JOIN or caller.api_version >= CLIENT_MADE_IDS_SINCE:
        _require(request.member_id.strip(), "MemberId can't be empty.")
    if epoch == JOIN:
        _require(
            request.rebalance_timeout_ms != -1,
            "RebalanceTimeoutMs must be provided in first request.",
        )
        _require(
            request.topic_partitions is not None and not request.topic_partitions,
            "TopicPartitions must be empty when (re-)joining.",
        )
        _require(
            request.subscribed_topic_names is not None
            or request.subscribed_topic_regex is not None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when joining.",
        )
    elif epoch == LEFT_FOR_NOW:
        _require(request.instance_id is not None, "InstanceId can't be null.")
    else:
        _require(epoch > 0 or epoch == LEAVE, "MemberEpoch is invalid.")
    names = request.subscribed_topic_names
    _require(len(names or ()) <= config.subscribed_topics_max, "Too many topics.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in config.consumer_assignors:
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"unknown assignor {assignor}: use one of {', '.join(config.consumer_assignors)}",
        )
    if request.subscribed_topic_regex is not None:
        patterns.check(request.subscribed_topic_regex)


def _require(is_met: object, message: str) -> None:
    if not is_met:
        raise Refused(ErrorCode.INVALID_REQUEST, message)


def heartbeat(
    draft: PendingChange,
    request: ConsumerGroupHeartbeatRequest,
    caller: GroupCaller,
    outcome: CallResult,
    now_ms: int,
) -> ConsumerGroupHeartbeatResponse:
    """Handles a heartbeat that joins or stays."""
    group = draft.group
    member_id = request.member_id or caller.fresh_id
    check_capacity(draft, member_id)
    reported = _reported(request)
    member = _enter(draft, request, member_id, reported)
    before = draft.current(member_id)
    updated = _updated(member, request, caller)
    is_new = member is UNKNOWN
    wanted, before_wanted = ((one.topics, one.regex, one.principal) for one in (updated, member))
    is_changed = wanted != before_wanted
    draft.put(member_id, updated)
    if is_new or is_changed or group.is_stale:
        draft.refresh(must_bump=is_new or is_changed)
    draft.retarget(now_ms)
    current = draft.advance(member_id, reported)
    outcome.records += draft.records()
    group.is_stale = False
    _arm(group, member_id, updated, current, before, now_ms)
    is_full = request.member_epoch == JOIN or (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or bool(updated.regex))
        and request.topic_partitions is not None
    )
    is_told = is_full or current.assigned != before.assigned
    response = beat_response(group.settings, member_id, current, is_told)
    if draft.assignment_epoch != draft.epoch:
        # A member that joined meanwhile should get its partitions as soon as there is a target.
        wait_ms = max(draft.wait_ms(now_ms), 1)
        response.heartbeat_interval_ms = min(response.heartbeat_interval_ms, wait_ms)
    return response


def beat(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, now_ms: int
) -> ConsumerGroupHeartbeatResponse | None:
    """Fast path of a heartbeat that changes nothing; None if it may change something."""
    member_id = request.member_id
    current = group.currents.get(member_id)
    if (
        current is None
        or group.is_stale
        or current.state != MEMBER_STABLE
        or not request.member_epoch == current.epoch == group.value.epoch
        or group.value.epoch != group.value.assignment_epoch
        or request.rebalance_timeout_ms != -1
        or request.subscribed_topic_names is not None
        or request.subscribed_topic_regex is not None
        or request.server_assignor is not None
        or request.rack_id is not None
        or group.members[member_id].embedded is not None
    ):
        return None
    group.check_member(member_id, request.instance_id)
    group.extend_session(member_id, now_ms)
    return beat_response(group.settings, member_id, current, False)


def check_capacity(draft: PendingChange, member_id: str) -> None:
    if member_id not in draft.members and len(draft.members) >= draft.group.config.group_size_max:
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED)


def _reported(request: ConsumerGroupHeartbeatRequest) -> set[Slot] | None:
    if request.topic_partitions is None:
        return None
    return flat((row.topic_id, row.partitions) for row in request.topic_partitions)


def _enter(
    draft: PendingChange,
    request: ConsumerGroupHeartbeatRequest,
    member_id: str,
    reported: set[Slot] | None,
) -> ConsumerMemberValue:
    """Member before this call: UNKNOWN for a new one, the old state for a returning static one."""
    instance_id = request.instance_id
    if request.member_epoch == JOIN and instance_id is not None:
        old_id = draft.statics.get(instance_id)
        if old_id is not None:
            old, place = draft.members[old_id], draft.current(old_id)
            if old.embedded is None and place.epoch != LEFT_FOR_NOW:
                _check_same(old_id, member_id, instance_id)
                return old
            if old_id != member_id:
                draft.replace(old_id, member_id)
            else:
                draft.currents[member_id] = CurrentValue(0, 0, MEMBER_STABLE, place.assigned, ())
            return draft.members[member_id]
        if member_id in draft.members:
            raise Refused(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"member {member_id} is not instance {instance_id}: rejoin",
            )
        return UNKNOWN
    if request.member_epoch == JOIN and member_id not in draft.members:
        return UNKNOWN
    member = draft.group.check_member(member_id, instance_id)
    if request.member_epoch != JOIN:
        _check_epoch(draft.current(member_id), request.member_epoch, reported)
    elif member.embedded is not None:
        # A migrated classic member comes back speaking the new protocol.
        place = draft.current(member_id)
        draft.currents[member_id] = CurrentValue(0, 0, MEMBER_STABLE, place.assigned, ())
    return member


def _check_same(old_id: str, member_id: str, instance_id: str) -> None:
    if old_id != member_id:
        raise Refused(
            ErrorCode.UNRELEASED_INSTANCE_ID, f"{instance_id} is in use by member {old_id}"
        )


def _check_epoch(current: CurrentValue, epoch: int, reported: set[Slot] | None) -> None:
    """Checks the epoch; the previous one is accepted too: the response with the new one may be
    lost."""
    if epoch == current.epoch:
        return
    is_lost_answer = epoch == current.previous_epoch and (
        reported is not None and reported <= flat(current.assigned)
    )
    if not is_lost_answer:
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"member epoch {epoch} does not match the coordinator's {current.epoch}: "
            "abandon all partitions and rejoin",
        )


def _updated(
    member: ConsumerMemberValue, request: ConsumerGroupHeartbeatRequest, caller: GroupCaller
) -> ConsumerMemberValue:
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    if regex is None:
        regex = member.regex
    timeout_ms = request.rebalance_timeout_ms
    return ConsumerMemberValue(
        request.instance_id or member.instance_id,
        request.rack_id or member.rack_id,
        caller.client_id,
        caller.client_host,
        member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        member.topics if names is None else tuple(sorted(set(names))),
        regex,
        request.server_assignor or member.assignor,
        None,
        caller.principal if regex else "",
    )


def _arm(
    group: ConsumerGroup,
    member_id: str,
    member: ConsumerMemberValue,
    current: CurrentValue,
    before: CurrentValue,
    now_ms: int,
) -> None:
    group.timers.set(("session", member_id), now_ms + group.session_timeout_of(member))
    group.timers.cancel(("join", member_id))
    group.timers.cancel(("sync", member_id))
    if current.state != UNREVOKED:
        group.timers.cancel(("rebalance", member_id))
    elif current != before:
        group.timers.set(("rebalance", member_id), now_ms + member.rebalance_timeout_ms)


def beat_response(
    settings: ConsumerGroupConfig, member_id: str, current: CurrentValue, is_told: bool
) -> ConsumerGroupHeartbeatResponse:
    interval_ms = settings.heartbeat_interval_ms
    if current.state == UNRELEASED and interval_ms > UNRELEASED_MS:
        interval_ms = UNRELEASED_MS
    return ConsumerGroupHeartbeatResponse(
        error_code=_NONE,
        member_id=member_id,
        member_epoch=current.epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=_assignment(current) if is_told else None,
    )


def _assignment(current: CurrentValue) -> ConsumerGroupHeartbeatAssignment:
    rows = [
        ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=TopicId(topic_id), partitions=rows)
        for topic_id, rows in current.assigned
    ]
    return ConsumerGroupHeartbeatAssignment(topic_partitions=rows)
