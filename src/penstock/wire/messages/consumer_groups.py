"""Consumer group protocol (KIP-848).

ConsumerGroupHeartbeat (68), ConsumerGroupDescribe (69).
A null field of a heartbeat means "unchanged since the last one". v1 adds the regular expression
of topic names and, in the description, the type of member (KIP-1099).
"""

from collections.abc import Sequence

from penstock.base.ids import TopicId
from penstock.wire.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    nested,
    string,
    struct,
    uuid,
)


@struct()
class ConsumerGroupHeartbeatRequestTopicPartitions:
    """Partitions of one topic that the member owns."""

    topic_id: TopicId = uuid()
    partitions: Sequence[int] = array(int32, default=())


@message(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatRequest:
    """Joins (epoch 0), stays in, or leaves (-1, -2) a consumer group."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable=True, default=None)
    rack_id: str | None = string(nullable=True, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: Sequence[str] | None = array(string, nullable=True, default=None)
    subscribed_topic_regex: str | None = string(since=1, nullable=True, default=None)
    server_assignor: str | None = string(nullable=True, default=None)
    topic_partitions: Sequence[ConsumerGroupHeartbeatRequestTopicPartitions] | None = array(
        ConsumerGroupHeartbeatRequestTopicPartitions, nullable=True
    )


@struct()
class ConsumerGroupHeartbeatResponseTopicPartitions:
    """Partitions of one topic in the target assignment of the member."""

    topic_id: TopicId = uuid()
    partitions: Sequence[int] = array(int32, default=())


@struct()
class ConsumerGroupHeartbeatAssignment:
    """Target assignment of the member."""

    topic_partitions: Sequence[ConsumerGroupHeartbeatResponseTopicPartitions] = array(
        ConsumerGroupHeartbeatResponseTopicPartitions
    )


@message(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatResponse:
    """Epoch of the member, and its assignment if it changed."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    member_id: str | None = string(nullable=True, default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: ConsumerGroupHeartbeatAssignment | None = nested(
        ConsumerGroupHeartbeatAssignment, nullable=True, default=None
    )


@message(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeRequest:
    """Requests descriptions of consumer groups."""

    group_ids: Sequence[str] = array(string, default=())
    include_authorized_operations: bool = boolean()


@struct()
class ConsumerGroupDescribeTopicPartitions:
    """Partitions of one topic."""

    topic_id: TopicId = uuid()
    topic_name: str = string()
    partitions: Sequence[int] = array(int32, default=())


@struct()
class ConsumerGroupDescribeAssignment:
    """Current or target assignment of a member."""

    topic_partitions: Sequence[ConsumerGroupDescribeTopicPartitions] = array(
        ConsumerGroupDescribeTopicPartitions
    )


@struct()
class ConsumerGroupDescribeMember:
    """Member with its current and target assignment."""

    member_id: str = string()
    instance_id: str | None = string(nullable=True, default=None)
    rack_id: str | None = string(nullable=True, default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: Sequence[str] = array(string, default=())
    subscribed_topic_regex: str | None = string(nullable=True, default=None)
    assignment: ConsumerGroupDescribeAssignment = nested(ConsumerGroupDescribeAssignment)
    target_assignment: ConsumerGroupDescribeAssignment = nested(ConsumerGroupDescribeAssignment)
    member_type: int = int8(since=1, default=-1)


@struct()
class DescribedConsumerGroup:
    """Consumer group and its members."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: Sequence[ConsumerGroupDescribeMember] = array(ConsumerGroupDescribeMember)
    authorized_operations: int = int32(default=-2147483648)


@message(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeResponse:
    """Descriptions of consumer groups."""

    throttle_time_ms: int = int32(default=0)
    groups: Sequence[DescribedConsumerGroup] = array(DescribedConsumerGroup)
