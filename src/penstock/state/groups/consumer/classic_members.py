"""Members that speak the classic protocol inside a consumer group (KIP-848, migration).

JoinGroup returns the epoch as their generation, SyncGroup returns their assignment in the consumer
protocol's encoding, and Heartbeat returns REBALANCE_IN_PROGRESS when they must rejoin to advance a
step. No member is told to be the leader: the coordinator assigns.
"""

from collections.abc import Mapping

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.base.ids import TopicId
from penstock.base.state_machine import Token
from penstock.state.groups.call_result import CallResult
from penstock.state.groups.classic.join import MEMBER_ID_REQUIRED_SINCE
from penstock.state.groups.classic.member import (
    for_version,
    join_error,
    joined,
    protocols_of,
    rebalance_timeout_of,
)
from penstock.state.groups.config import GroupCaller
from penstock.state.groups.consumer.group import NO_TARGET, ConsumerGroup
from penstock.state.groups.consumer.heartbeat import UNKNOWN, check_capacity
from penstock.state.groups.consumer.pending_change import PendingChange
from penstock.state.groups.consumer.reconciliation import (
    JOINING,
    UNRELEASED,
    UNREVOKED,
    flat,
    from_names,
    to_names,
)
from penstock.state.groups.consumer_protocol import (
    CONSUMER,
    Assignment,
    Subscription,
    read_subscription,
    write_assignment,
)
from penstock.state.groups.records import ConsumerMemberValue, Embedded
from penstock.wire.messages.classic_groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)


def join(
    draft: PendingChange, request: JoinGroupRequest, caller: GroupCaller, now_ms: int
) -> JoinGroupResponse:
    """Drafts the member's next step; the caller persists it and arms the timers."""
    instance_id = request.group_instance_id
    member_id = request.member_id
    if not member_id:
        name = caller.client_id if instance_id is None else instance_id
        member_id = f"{name}-{caller.fresh_id}"
    check_capacity(draft, member_id)
    _check_protocols(draft, request)
    is_nameless = not request.member_id and instance_id is None
    if is_nameless and caller.api_version >= MEMBER_ID_REQUIRED_SINCE:
        return join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    member = _enter(draft, member_id, instance_id, is_known=bool(request.member_id))
    subscription = _subscription(request)
    updated = ConsumerMemberValue(
        instance_id or member.instance_id,
        subscription.rack_id or member.rack_id,
        caller.client_id,
        caller.client_host,
        rebalance_timeout_of(request),
        tuple(sorted(set(subscription.topics))),
        "",
        None,
        Embedded(request.session_timeout_ms, protocols_of(request)),
    )
    is_new = member is UNKNOWN
    is_changed = (updated.topics, updated.regex) != (member.topics, member.regex)
    draft.put(member_id, updated)
    if is_new or is_changed or draft.group.is_stale:
        draft.refresh(must_bump=is_new or is_changed)
    draft.retarget(now_ms)
    current = draft.advance(member_id, from_names(subscription.owned_partitions, draft.topics))
    return joined(member_id, current.epoch, CONSUMER, request.protocols[0].name, None, [])


def _check_protocols(draft: PendingChange, request: JoinGroupRequest) -> None:
    """Requires that one of the member's protocols is supported by all classic members."""
    others = [
        {name for name, _ in member.embedded.protocols}
        for member in draft.members.values()
        if member.embedded is not None
    ]
    names = {protocol.name for protocol in request.protocols}
    if request.protocol_type != CONSUMER or not names.intersection(*others):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _enter(
    draft: PendingChange, member_id: str, instance_id: str | None, is_known: bool
) -> ConsumerMemberValue:
    if instance_id is None:
        return draft.members.get(member_id, UNKNOWN)
    if is_known:
        return draft.group.check_member(member_id, instance_id)
    old_id = draft.statics.get(instance_id)
    if old_id is None:
        return UNKNOWN
    draft.replace(old_id, member_id)
    return draft.members[member_id]


def _subscription(request: JoinGroupRequest) -> Subscription:
    try:
        return read_subscription(bytes(request.protocols[0].metadata))[1]
    except PeerError as error:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error


def arm_after_join(
    group: ConsumerGroup, request: JoinGroupRequest, member_id: str, now_ms: int
) -> None:
    """Arms the sync timer: the member must sync within its rebalance timeout."""
    group.is_stale = False
    group.timers.cancel(("join", member_id))
    group.timers.cancel(("rebalance", member_id))
    group.timers.set(("session", member_id), now_ms + request.session_timeout_ms)
    group.timers.set(("sync", member_id), now_ms + rebalance_timeout_of(request))


def answer_join(
    outcome: CallResult, token: Token, caller: GroupCaller, response: JoinGroupResponse
) -> None:
    outcome.reply(token, for_version(response, caller.api_version))


def _classic(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMemberValue, Embedded]:
    member = group.check_member(member_id, instance_id)
    if member.embedded is None:
        raise Refused(
            ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id} does not use the classic protocol"
        )
    if group.currents.get(member_id, JOINING).epoch != generation:
        raise Refused(ErrorCode.ILLEGAL_GENERATION)
    return member, member.embedded


def sync(
    group: ConsumerGroup, request: SyncGroupRequest, names: Mapping[TopicId, str], now_ms: int
) -> SyncGroupResponse:
    member_id = request.member_id
    member, embedded = _classic(group, member_id, request.group_instance_id, request.generation_id)
    protocol, metadata = embedded.protocols[0]
    if request.protocol_type not in (None, CONSUMER) or (
        request.protocol_name not in (None, protocol)
    ):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    current = group.currents[member_id]
    if group.value.epoch > current.epoch and current.state != UNREVOKED:
        group.timers.set_once(("join", member_id), now_ms + member.rebalance_timeout_ms)
        raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)
    group.timers.cancel(("sync", member_id))
    group.extend_session(member_id, now_ms)
    owned = tuple((TopicId(topic_id), rows) for topic_id, rows in current.assigned)
    assignment = Assignment(assigned_partitions=to_names(owned, names))
    return SyncGroupResponse(
        error_code=int(ErrorCode.NONE),
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=write_assignment(assignment, read_subscription(metadata)[0]),
    )


def heartbeat(group: ConsumerGroup, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
    member_id = request.member_id
    member, _ = _classic(group, member_id, request.group_instance_id, request.generation_id)
    group.extend_session(member_id, now_ms)
    current = group.currents[member_id]
    must_join = (
        current.epoch < group.value.epoch
        or current.state == UNREVOKED
        or (current.state == UNRELEASED and not _is_blocked(group, member_id))
    )
    if must_join:
        group.timers.set_once(("join", member_id), now_ms + member.rebalance_timeout_ms)
    code = ErrorCode.REBALANCE_IN_PROGRESS if must_join else ErrorCode.NONE
    return HeartbeatResponse(error_code=int(code))


def _is_blocked(group: ConsumerGroup, member_id: str) -> bool:
    """True while another member still owns a partition that this one waits for."""
    missing = flat(group.targets.get(member_id, NO_TARGET).owned) - flat(
        group.currents[member_id].assigned
    )
    return any(group.owners.get(slot, member_id) != member_id for slot in missing)
