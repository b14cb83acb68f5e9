"""Share groups (KIP-932).

ShareGroupHeartbeat (76), ShareGroupDescribe (77), ShareFetch (78), ShareAcknowledge (79).
Version 0 was early access and was removed. v2 of fetch and acknowledge renews leases (KIP-1222) and
chooses how records are acquired (KIP-1206).

Penstock's clients send more about an acknowledged range, in tagged fields from 10000 on
(`OWN_TAGS`). Kafka skips unknown tags, and defaults are not sent. They carry a delay before the
next delivery, the reason of a failure, a new lease time, a flag that the record was not processed,
so that this delivery does not count, and a flag that it need not be redelivered at once.
Between nodes, a heartbeat with `is_declaration` makes a share group known without a member. A node
that does not know the field takes it for a join; that member is gone after one session timeout.
"""

from collections.abc import Sequence

from penstock.base.ids import TopicId
from penstock.wire.messages.fetch import LeaderIdAndEpoch, NodeEndpoint
from penstock.wire.schema import (
    Records,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    nested,
    records,
    string,
    struct,
    uuid,
)

OWN_TAGS = 10000
"""First tag of Penstock's own tagged fields, which are not in Kafka's schemas."""


@message(key=76, versions=(1, 1), flexible=1)
class ShareGroupHeartbeatRequest:
    """Joins (epoch 0), stays in, or leaves (-1) a share group."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(nullable=True, default=None)
    subscribed_topic_names: Sequence[str] | None = array(string, nullable=True, default=None)
    is_declaration: bool = boolean(default=False, tag=10000)
    """Registers the group as a reader of these topics, without members."""


@struct()
class ShareGroupHeartbeatTopicPartitions:
    """Partitions of one topic that are assigned to the member."""

    topic_id: TopicId = uuid()
    partitions: Sequence[int] = array(int32, default=())


@struct()
class ShareGroupHeartbeatAssignment:
    """Assignment of the member."""

    topic_partitions: Sequence[ShareGroupHeartbeatTopicPartitions] = array(
        ShareGroupHeartbeatTopicPartitions
    )


@message(key=76, versions=(1, 1), flexible=1)
class ShareGroupHeartbeatResponse:
    """Epoch of the member, and its assignment if it changed."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    member_id: str | None = string(nullable=True, default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: ShareGroupHeartbeatAssignment | None = nested(
        ShareGroupHeartbeatAssignment, nullable=True, default=None
    )


@message(key=77, versions=(1, 1), flexible=1)
class ShareGroupDescribeRequest:
    """Requests descriptions of share groups."""

    group_ids: Sequence[str] = array(string, default=())
    include_authorized_operations: bool = boolean()


@struct()
class ShareGroupDescribeTopicPartitions:
    """Partitions of one topic."""

    topic_id: TopicId = uuid()
    topic_name: str = string()
    partitions: Sequence[int] = array(int32, default=())


@struct()
class ShareGroupDescribeAssignment:
    """Assignment of a member."""

    topic_partitions: Sequence[ShareGroupDescribeTopicPartitions] = array(
        ShareGroupDescribeTopicPartitions
    )


@struct()
class ShareGroupDescribeMember:
    """Member of a share group."""

    member_id: str = string()
    rack_id: str | None = string(nullable=True, default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: Sequence[str] = array(string, default=())
    assignment: ShareGroupDescribeAssignment = nested(ShareGroupDescribeAssignment)


@struct()
class DescribedShareGroup:
    """Share group and its members."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: Sequence[ShareGroupDescribeMember] = array(ShareGroupDescribeMember)
    authorized_operations: int = int32(default=-2147483648)


@message(key=77, versions=(1, 1), flexible=1)
class ShareGroupDescribeResponse:
    """Descriptions of share groups."""

    throttle_time_ms: int = int32(default=0)
    groups: Sequence[DescribedShareGroup] = array(DescribedShareGroup)


@struct()
class AcknowledgementBatch:
    """Acknowledgement of a range of records: one type per record, or one for all.

    Tagged fields of Penstock's clients are -1, None or False for other clients.
    """

    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: Sequence[int] = array(int8, default=())
    delay_ms: int = int64(default=-1, tag=10000)
    error_class: str | None = string(nullable=True, default=None, tag=10001)
    error_message: str | None = string(nullable=True, default=None, tag=10002)
    lock_ms: int = int32(default=-1, tag=10003)
    is_unseen: bool = boolean(default=False, tag=10004)
    is_patient: bool = boolean(default=False, tag=10005)
    traceback: str | None = string(nullable=True, default=None, tag=10006)


@struct()
class ShareFetchPartition:
    """Partition to read from, with piggybacked acknowledgements."""

    partition_index: int = int32()
    acknowledgement_batches: Sequence[AcknowledgementBatch] = array(AcknowledgementBatch)


@struct()
class ShareFetchTopic:
    """Part of a share fetch for one topic."""

    topic_id: TopicId = uuid()
    partitions: Sequence[ShareFetchPartition] = array(ShareFetchPartition)


@struct()
class ShareFetchForgottenTopic:
    """Partitions that leave the share session."""

    topic_id: TopicId = uuid()
    partitions: Sequence[int] = array(int32, default=())


@message(key=78, versions=(1, 2), flexible=1)
class ShareFetchRequest:
    """Acquires records for this member, and acknowledges earlier ones."""

    group_id: str | None = string(nullable=True, default=None)
    member_id: str | None = string(nullable=True)
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    max_records: int = int32()
    batch_size: int = int32()
    share_acquire_mode: int = int8(since=2, default=0)
    is_renew_ack: bool = boolean(since=2, default=False)
    topics: Sequence[ShareFetchTopic] = array(ShareFetchTopic)
    forgotten_topics_data: Sequence[ShareFetchForgottenTopic] = array(ShareFetchForgottenTopic)


@struct()
class AcquiredRecords:
    """Range of records leased to this member, and its delivery count."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()


@struct()
class ShareFetchPartitionData:
    """Record batches of one partition, and the ranges acquired in them."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    acknowledge_error_code: int = int16()
    acknowledge_error_message: str | None = string(nullable=True, default=None)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch)
    records: Records = records()
    acquired_records: Sequence[AcquiredRecords] = array(AcquiredRecords)


@struct()
class ShareFetchableTopicResponse:
    """Results of one topic."""

    topic_id: TopicId = uuid()
    partitions: Sequence[ShareFetchPartitionData] = array(ShareFetchPartitionData)


@message(key=78, versions=(1, 2), flexible=1)
class ShareFetchResponse:
    """Acquired records, and the duration of their leases."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    acquisition_lock_timeout_ms: int = int32()
    responses: Sequence[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: Sequence[NodeEndpoint] = array(NodeEndpoint)


@struct()
class AcknowledgePartition:
    """Acknowledgements of one partition."""

    partition_index: int = int32()
    acknowledgement_batches: Sequence[AcknowledgementBatch] = array(AcknowledgementBatch)


@struct()
class AcknowledgeTopic:
    """Acknowledgements of one topic."""

    topic_id: TopicId = uuid()
    partitions: Sequence[AcknowledgePartition] = array(AcknowledgePartition)


@message(key=79, versions=(1, 2), flexible=1)
class ShareAcknowledgeRequest:
    """Accepts (1), releases (2), rejects (3) or renews (4) acquired records."""

    group_id: str | None = string(nullable=True, default=None)
    member_id: str | None = string(nullable=True)
    share_session_epoch: int = int32()
    is_renew_ack: bool = boolean(since=2, default=False)
    topics: Sequence[AcknowledgeTopic] = array(AcknowledgeTopic)


@struct()
class ShareAcknowledgePartitionData:
    """Result of the acknowledgements of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch)


@struct()
class ShareAcknowledgeTopicResponse:
    """Results of one topic."""

    topic_id: TopicId = uuid()
    partitions: Sequence[ShareAcknowledgePartitionData] = array(ShareAcknowledgePartitionData)


@message(key=79, versions=(1, 2), flexible=1)
class ShareAcknowledgeResponse:
    """Results of the acknowledgements."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    acquisition_lock_timeout_ms: int = int32(since=2, default=0)
    responses: Sequence[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse)
    node_endpoints: Sequence[NodeEndpoint] = array(NodeEndpoint)
