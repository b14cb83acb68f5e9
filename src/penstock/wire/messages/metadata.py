"""Brokers, topics and leaders: Metadata (3) and DescribeTopicPartitions (75).

Metadata v1 distinguishes null (all topics) from empty (none), v10 adds topic ids, v12 accepts a
topic by id alone, v13 has a top-level error. DescribeTopicPartitions pages through a topic and has
the eligible leader replicas (KIP-966).
"""

from collections.abc import Sequence

from penstock.base.ids import NO_TOPIC_ID, TopicId
from penstock.wire.schema import array, boolean, int16, int32, message, nested, string, struct, uuid


@struct()
class MetadataRequestTopic:
    """Requested topic, by name, or by id alone from v12 on."""

    topic_id: TopicId = uuid(since=10, default=NO_TOPIC_ID)
    name: str | None = string(nullable=10)


@message(key=3, versions=(0, 13), flexible=9)
class MetadataRequest:
    """Requests brokers and topics; null topics means all."""

    topics: Sequence[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable=1)
    allow_auto_topic_creation: bool = boolean(since=4, default=True)
    include_cluster_authorized_operations: bool = boolean(since=8, until=10, default=False)
    include_topic_authorized_operations: bool = boolean(since=8, default=False)


@struct()
class MetadataResponseBroker:
    """Broker with its address on this listener."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(since=1, nullable=True, default=None)


@struct()
class MetadataResponsePartition:
    """Leader and replicas of one partition."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(since=7, default=-1)
    replica_nodes: Sequence[int] = array(int32, default=())
    isr_nodes: Sequence[int] = array(int32, default=())
    offline_replicas: Sequence[int] = array(int32, since=5, default=())


@struct()
class MetadataResponseTopic:
    """Partitions of a topic, or an error."""

    error_code: int = int16()
    name: str | None = string(nullable=12)
    topic_id: TopicId = uuid(since=10, default=NO_TOPIC_ID)
    is_internal: bool = boolean(since=1, default=False)
    partitions: Sequence[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(since=8, default=-2147483648)


@message(key=3, versions=(0, 13), flexible=9)
class MetadataResponse:
    """Brokers, controller and topics of the cluster."""

    throttle_time_ms: int = int32(since=3, default=0)
    brokers: Sequence[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string(since=2, nullable=True, default=None)
    controller_id: int = int32(since=1, default=-1)
    topics: Sequence[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32(since=8, until=10, default=-2147483648)
    error_code: int = int16(since=13, default=0)


@struct()
class DescribeTopicPartitionsTopicRequest:
    """Requested topic."""

    name: str = string()


@struct()
class DescribeTopicPartitionsRequestCursor:
    """Start of this page."""

    topic_name: str = string()
    partition_index: int = int32()


@message(key=75, versions=(0, 0), flexible=0)
class DescribeTopicPartitionsRequest:
    """Requests one page of partitions."""

    topics: Sequence[DescribeTopicPartitionsTopicRequest] = array(
        DescribeTopicPartitionsTopicRequest
    )
    response_partition_limit: int = int32(default=2000)
    cursor: DescribeTopicPartitionsRequestCursor | None = nested(
        DescribeTopicPartitionsRequestCursor, nullable=True, default=None
    )


@struct()
class DescribeTopicPartitionsResponsePartition:
    """Leader, replicas and eligible leaders of one partition."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: Sequence[int] = array(int32, default=())
    isr_nodes: Sequence[int] = array(int32, default=())
    eligible_leader_replicas: Sequence[int] | None = array(int32, nullable=True, default=None)
    last_known_elr: Sequence[int] | None = array(int32, nullable=True, default=None)
    offline_replicas: Sequence[int] = array(int32, default=())


@struct()
class DescribeTopicPartitionsResponseTopic:
    """Partitions of a topic on this page."""

    error_code: int = int16()
    name: str | None = string(nullable=True)
    topic_id: TopicId = uuid()
    is_internal: bool = boolean(default=False)
    partitions: Sequence[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition
    )
    topic_authorized_operations: int = int32(default=-2147483648)


@struct()
class DescribeTopicPartitionsResponseCursor:
    """Start of the next page."""

    topic_name: str = string()
    partition_index: int = int32()


@message(key=75, versions=(0, 0), flexible=0)
class DescribeTopicPartitionsResponse:
    """Page of partitions."""

    throttle_time_ms: int = int32(default=0)
    topics: Sequence[DescribeTopicPartitionsResponseTopic] = array(
        DescribeTopicPartitionsResponseTopic
    )
    next_cursor: DescribeTopicPartitionsResponseCursor | None = nested(
        DescribeTopicPartitionsResponseCursor, nullable=True, default=None
    )
