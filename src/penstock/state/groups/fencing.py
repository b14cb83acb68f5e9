"""Fencing: checks of who may commit, fetch and delete a group's offsets.

Classic members are fenced by generation (ILLEGAL_GENERATION), consumer members by their epoch
(STALE_MEMBER_EPOCH), static ones by their member id (FENCED_INSTANCE_ID). A commit without
generation and member is allowed while the group has no members: tools, and consumers that assign
partitions to themselves, commit this way.
"""

from penstock.base.errors import ErrorCode, Refused
from penstock.state.groups.classic.group import ClassicGroup
from penstock.state.groups.classic.member import COMPLETING, EMPTY
from penstock.state.groups.consumer.group import ConsumerGroup
from penstock.state.groups.consumer.reconciliation import JOINING
from penstock.state.groups.consumer_protocol import CONSUMER
from penstock.state.groups.share.group import ShareGroup

CONSUMER_COMMIT_SINCE = 9

Group = ClassicGroup | ConsumerGroup | ShareGroup


def check_commit(
    group: Group,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    api_version: int,
    is_transactional: bool,
) -> None:
    """Raises Refused if this caller's offsets must not be committed."""
    group = with_positions(group)
    if isinstance(group, ConsumerGroup):
        _check_consumer_commit(group, member_id, instance_id, epoch, api_version, is_transactional)
        return
    if epoch < 0 and group.state == EMPTY:
        return
    if epoch >= 0 or member_id or instance_id is not None:
        group.check_member(member_id, instance_id)
        if epoch != group.generation:
            raise Refused(ErrorCode.ILLEGAL_GENERATION)
    elif not is_transactional:
        # Old transactional commits have neither member nor generation and are accepted as is.
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    if group.state == COMPLETING and not is_transactional:
        raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)


def _check_consumer_commit(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    api_version: int,
    is_transactional: bool,
) -> None:
    if epoch < 0 and not group.members:
        return
    if is_transactional and epoch < 0 and not member_id and instance_id is None:
        return
    member = group.check_member(member_id, instance_id)
    is_old_client = member.embedded is None and api_version < CONSUMER_COMMIT_SINCE
    if is_old_client and not is_transactional:
        raise Refused(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members of the consumer protocol",
        )
    try:
        check_epoch(group, member_id, epoch)
    except Refused as refused:
        if is_transactional and refused.code == ErrorCode.STALE_MEMBER_EPOCH:
            raise Refused(ErrorCode.ILLEGAL_GENERATION, refused.message) from refused
        raise


def check_epoch(group: ConsumerGroup, member_id: str, epoch: int) -> None:
    known = group.currents.get(member_id, JOINING).epoch
    if epoch == known:
        return
    is_classic = group.members[member_id].embedded is not None
    code = ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
    raise Refused(code, f"member epoch {epoch} does not match the coordinator's {known}: rejoin")


def check_fetch(group: Group, member_id: str | None, epoch: int) -> None:
    """Checks the member; only members of the consumer protocol name themselves in OffsetFetch."""
    group = with_positions(group)
    if isinstance(group, ClassicGroup) or (not member_id and epoch < 0):
        return
    group.check_member(member_id or "", None)
    check_epoch(group, member_id or "", epoch)


def with_positions(group: Group) -> ClassicGroup | ConsumerGroup:
    """Returns the group, or refuses a share group: clients do not commit its offsets."""
    if isinstance(group, ShareGroup):
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is a share group.")
    return group


def check_offset_delete(group: Group) -> None:
    group = with_positions(group)
    if isinstance(group, ConsumerGroup):
        return
    if group.state != EMPTY and group.protocol_type != CONSUMER:
        raise Refused(ErrorCode.NON_EMPTY_GROUP)


def check_group_delete(group: Group) -> None:
    if group.state != EMPTY:
        raise Refused(ErrorCode.NON_EMPTY_GROUP)


def is_subscribed(group: Group, topic: str, subscribed: frozenset[str]) -> bool:
    """True if the group subscribes to `topic`; `subscribed` has the topics of a consumer group."""
    if not isinstance(group, ClassicGroup):
        return topic in subscribed
    return group.is_subscribed(topic)
