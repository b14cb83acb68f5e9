"""Response rows of ListGroups, DescribeGroups, ConsumerGroupDescribe and ShareGroupDescribe."""

from collections.abc import Iterable, Sequence

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicId
from penstock.state.groups.classic.group import ClassicGroup
from penstock.state.groups.classic.member import DEAD, STABLE
from penstock.state.groups.config import TopicCatalogue
from penstock.state.groups.consumer.group import NO_TARGET, ConsumerGroup
from penstock.state.groups.consumer.pending_change import PendingChange
from penstock.state.groups.consumer.reconciliation import JOINING
from penstock.state.groups.consumer_protocol import CONSUMER
from penstock.state.groups.fencing import Group
from penstock.state.groups.share.group import ASSIGNOR, ShareGroup
from penstock.state.groups.topic_regex import Patterns
from penstock.wire.messages.classic_groups import DescribedGroup, DescribedGroupMember, ListedGroup
from penstock.wire.messages.consumer_groups import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeTopicPartitions,
    DescribedConsumerGroup,
)
from penstock.wire.messages.share import (
    DescribedShareGroup,
    ShareGroupDescribeAssignment,
    ShareGroupDescribeMember,
    ShareGroupDescribeTopicPartitions,
)

NOT_FOUND_SINCE = 6
"""First version of DescribeGroups in which a missing group is an error, not just state Dead."""

SHARE = "share"
_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


def listed(group: Group) -> ListedGroup:
    if isinstance(group, ClassicGroup):
        protocol_type = group.protocol_type or ""
    else:
        protocol_type = SHARE if isinstance(group, ShareGroup) else CONSUMER
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=protocol_type,
        group_state=group.state,
        group_type=group.type_name,
    )


def is_listed(group: Group, states: Sequence[str], types: Sequence[str]) -> bool:
    """True if a group passes both filters; case is ignored, an empty filter passes everything."""
    is_state = not states or group.state.lower() in [state.strip().lower() for state in states]
    is_type = not types or group.type_name.lower() in [name.strip().lower() for name in types]
    return is_state and is_type


def described_classic(group: ClassicGroup) -> DescribedGroup:
    """Describes a classic group, with subscriptions and assignments only while it is stable."""
    is_stable = group.state == STABLE
    return DescribedGroup(
        error_code=int(ErrorCode.NONE),
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.value.instance_id,
                client_id=member.value.client_id,
                client_host=member.value.client_host,
                member_metadata=member.metadata(group.protocol) if is_stable else b"",
                member_assignment=member.value.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ],
    )


def missing_classic(group_id: str, message: str, api_version: int) -> DescribedGroup:
    is_error = api_version >= NOT_FOUND_SINCE
    return DescribedGroup(
        error_code=int(ErrorCode.GROUP_ID_NOT_FOUND if is_error else ErrorCode.NONE),
        error_message=message if is_error else None,
        group_id=group_id,
        group_state=DEAD,
        protocol_type="",
        protocol_data="",
        members=(),
    )


def described_consumer(
    group: ConsumerGroup, topics: TopicCatalogue, patterns: Patterns
) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        error_code=int(ErrorCode.NONE),
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.value.epoch,
        assignment_epoch=group.value.assignment_epoch,
        assignor_name=PendingChange(group, topics, patterns).assignor(),
        members=[_member(group, member_id, topics) for member_id in sorted(group.members)],
    )


def _member(
    group: ConsumerGroup, member_id: str, topics: TopicCatalogue
) -> ConsumerGroupDescribeMember:
    member = group.members[member_id]
    current = group.currents.get(member_id, JOINING)
    return ConsumerGroupDescribeMember(
        member_id=member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=current.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        subscribed_topic_regex=member.regex,
        assignment=_assignment(current.assigned, topics),
        target_assignment=_assignment(group.targets.get(member_id, NO_TARGET).owned, topics),
        member_type=_CONSUMER_MEMBER if member.embedded is None else _CLASSIC_MEMBER,
    )


def _assignment(
    owned: Iterable[tuple[bytes, tuple[int, ...]]], topics: TopicCatalogue
) -> ConsumerGroupDescribeAssignment:
    """Partitions with topic names; deleted topics are omitted."""
    return ConsumerGroupDescribeAssignment(
        topic_partitions=[
            ConsumerGroupDescribeTopicPartitions(
                topic_id=TopicId(topic_id),
                topic_name=topics.names[TopicId(topic_id)],
                partitions=rows,
            )
            for topic_id, rows in owned
            if topic_id in topics.names
        ]
    )


def missing_consumer(group_id: str, message: str) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        error_code=int(ErrorCode.GROUP_ID_NOT_FOUND),
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )


def described_share(group: ShareGroup, topics: TopicCatalogue) -> DescribedShareGroup:
    epoch = group.value.epoch
    return DescribedShareGroup(
        error_code=int(ErrorCode.NONE),
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=epoch,
        assignment_epoch=epoch,
        assignor_name=ASSIGNOR,
        members=[_share_member(group, member_id, topics) for member_id in sorted(group.members)],
    )


def _share_member(
    group: ShareGroup, member_id: str, topics: TopicCatalogue
) -> ShareGroupDescribeMember:
    member = group.members[member_id]
    return ShareGroupDescribeMember(
        member_id=member_id,
        rack_id=member.rack_id,
        member_epoch=group.told.get(member_id, group.value.epoch),
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        assignment=ShareGroupDescribeAssignment(
            topic_partitions=[
                ShareGroupDescribeTopicPartitions(
                    topic_id=topic_id, topic_name=topics.names[topic_id], partitions=rows
                )
                for topic_id, rows in group.assignment(member_id, topics)
                if topic_id in topics.names
            ]
        ),
    )


def missing_share(group_id: str, message: str) -> DescribedShareGroup:
    return DescribedShareGroup(
        error_code=int(ErrorCode.GROUP_ID_NOT_FOUND),
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )
