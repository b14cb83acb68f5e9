"""Removal of members from a consumer group: by leaving, session timeout, or late revocation.

All members removed by one call are removed in one draft and one new epoch. If the last member of
the consumer protocol leaves and only classic ones stay, the group is downgraded to a classic one
(`migration`); the shard decides that.
"""

from penstock.base.errors import ErrorCode, Refused
from penstock.state.groups.consumer.group import LEFT_FOR_NOW, ConsumerGroup
from penstock.state.groups.consumer.pending_change import PendingChange
from penstock.state.groups.records import CurrentValue
from penstock.wire.messages.classic_groups import LeaveGroupMemberResponse, MemberIdentity
from penstock.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
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
