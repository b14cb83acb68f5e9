"""Migration of classic groups to consumer groups and back, with their members (KIP-848).

Upgrade: the first ConsumerGroupHeartbeat to a classic group of consumers turns its members into
embedded ones at the group's generation. They own their last assignment plus the partitions that
they reported as owned when they last joined: a member may not have learned yet that it lost one.
Downgrade: when the last member of the consumer protocol leaves, the classic members keep what they
own, and a rebalance begins.

The number that fences old members, generation or epoch, only grows through either.
"""

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.state.groups.call_result import CallResult
from penstock.state.groups.classic.group import ClassicGroup
from penstock.state.groups.classic.member import (
    EMPTY,
    STABLE,
    ClassicMember,
    join_error,
    sync_error,
)
from penstock.state.groups.config import GroupConfig, TopicCatalogue
from penstock.state.groups.consumer.group import ConsumerGroup
from penstock.state.groups.consumer.pending_change import PendingChange
from penstock.state.groups.consumer.reconciliation import (
    MEMBER_STABLE,
    Slot,
    flat,
    from_names,
    packed,
    to_names,
)
from penstock.state.groups.consumer_protocol import (
    CONSUMER,
    Assignment,
    read_assignment,
    read_subscription,
    write_assignment,
)
from penstock.state.groups.records import (
    ClassicMemberValue,
    ConsumerMemberValue,
    CurrentValue,
    Embedded,
    TargetValue,
)
from penstock.state.groups.topic_regex import Patterns


def check_upgrade(group: ClassicGroup) -> None:
    can = group.config.can_upgrade and group.protocol_type == CONSUMER
    if not can or len(group.members) >= group.config.group_size_max:
        raise Refused(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group."
        )


def upgraded(group: ClassicGroup, topics: TopicCatalogue, patterns: Patterns) -> PendingChange:
    """Draft of the consumer group with all members of the classic one. Changes nothing."""
    draft = PendingChange(ConsumerGroup(group.group_id, group.config), topics, patterns)
    draft.epoch = draft.assignment_epoch = group.generation
    try:
        owned = _owned(group, topics)
        for member_id, member in sorted(group.members.items()):
            _embed(draft, group, member_id, member.value, owned)
    except PeerError as error:
        raise Refused(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {group.group_id} cannot be upgraded: {error}",
        ) from error
    draft.owners = owned
    return draft


def _owned(group: ClassicGroup, topics: TopicCatalogue) -> dict[Slot, str]:
    """Owner of each partition. If an assignor gave one twice, the first member owns it."""
    owned: dict[Slot, str] = {}
    for member_id, member in sorted(group.members.items()):
        rows = read_assignment(member.value.assignment).assigned_partitions
        for slot in sorted(from_names(rows, topics)):
            owned.setdefault(slot, member_id)
    for member_id, member in sorted(group.members.items()):
        subscription = read_subscription(_metadata(group, member.value))[1]
        for slot in sorted(from_names(subscription.owned_partitions, topics)):
            owned.setdefault(slot, member_id)
    return owned


def _metadata(group: ClassicGroup, value: ClassicMemberValue) -> bytes:
    protocol = group.protocol or value.protocols[0][0]
    return next(data for name, data in value.protocols if name == protocol)


def _embed(
    draft: PendingChange,
    group: ClassicGroup,
    member_id: str,
    value: ClassicMemberValue,
    owned: dict[Slot, str],
) -> None:
    protocol = group.protocol or value.protocols[0][0]
    subscription = read_subscription(_metadata(group, value))[1]
    # The protocol in use comes first: its metadata is the one read from now on.
    protocols = tuple(sorted(value.protocols, key=lambda named: named[0] != protocol))
    draft.put(
        member_id,
        ConsumerMemberValue(
            value.instance_id,
            subscription.rack_id,
            value.client_id,
            value.client_host,
            value.rebalance_timeout_ms,
            tuple(sorted(set(subscription.topics))),
            "",
            None,
            Embedded(value.session_timeout_ms, protocols),
        ),
    )
    slots = packed(slot for slot, owner in owned.items() if owner == member_id)
    draft.targets[member_id] = TargetValue(slots)
    draft.currents[member_id] = CurrentValue(
        group.generation, group.generation, MEMBER_STABLE, slots, ()
    )


def finish_upgrade(
    group: ClassicGroup, outcome: CallResult, now_ms: int, draft: PendingChange
) -> None:
    """Tells waiting members to rejoin; their sessions continue in the consumer group."""
    for member in group.members.values():
        code = ErrorCode.REBALANCE_IN_PROGRESS
        member.answer_join(outcome, join_error(code, member.member_id))
        member.answer_sync(outcome, sync_error(code))
        timeout_ms = member.value.session_timeout_ms
        draft.group.timers.set_once(("session", member.member_id), now_ms + timeout_ms)


def downgraded(
    draft: PendingChange, topics: TopicCatalogue, config: GroupConfig, now_ms: int
) -> ClassicGroup:
    """Classic group of a draft whose members are all classic."""
    group = ClassicGroup(draft.group.group_id, config)
    group.generation = draft.epoch
    group.protocol_type = CONSUMER
    group.since_ms = now_ms
    for member_id, member in sorted(draft.members.items()):
        assert member.embedded is not None
        current = draft.current(member_id)
        owned = packed(flat(current.assigned) | flat(current.revoking))
        version = read_subscription(member.embedded.protocols[0][1])[0]
        assignment = Assignment(assigned_partitions=to_names(owned, topics.names))
        value = ClassicMemberValue(
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.embedded.session_timeout_ms,
            member.embedded.protocols,
            write_assignment(assignment, version),
        )
        group.add(ClassicMember(member_id, value), now_ms, value.session_timeout_ms)
    group.state = STABLE if group.members else EMPTY
    group.protocol = group.select_protocol() if group.members else None
    group.subscribed = group.read_topics()
    return group
