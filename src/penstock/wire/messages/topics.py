"""Topics: CreateTopics (19), DeleteTopics (20), CreatePartitions (37).

CreateTopics v5 returns the resulting configs (KIP-525), v7 the topic id. DeleteTopics v6 takes
names or ids.
"""

from collections.abc import Sequence

from penstock.base.ids import NO_TOPIC_ID, TopicId
from penstock.wire.schema import array, boolean, int8, int16, int32, message, string, struct, uuid


@struct()
class CreatableReplicaAssignment:
    """Replica placement of one partition."""

    partition_index: int = int32()
    broker_ids: Sequence[int] = array(int32, default=())


@struct()
class CreatableTopicConfig:
    """Config of a topic to create."""

    name: str = string()
    value: str | None = string(nullable=True)


@struct()
class CreatableTopic:
    """Topic to create; -1 leaves partitions or replication to the broker."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: Sequence[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: Sequence[CreatableTopicConfig] = array(CreatableTopicConfig)


@message(key=19, versions=(2, 7), flexible=5)
class CreateTopicsRequest:
    """Creates topics, or only validates the request."""

    topics: Sequence[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean(default=False)


@struct()
class CreatableTopicConfigs:
    """Config of the created topic, with the source of its value."""

    name: str = string()
    value: str | None = string(nullable=True)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


@struct()
class CreatableTopicResult:
    """Created topic, or an error."""

    name: str = string()
    topic_id: TopicId = uuid(since=7, default=NO_TOPIC_ID)
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    num_partitions: int = int32(since=5, default=-1)
    replication_factor: int = int16(since=5, default=-1)
    configs: Sequence[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, since=5, nullable=True, default=None
    )
    topic_config_error_code: int = int16(since=5, default=0, tag=0)


@message(key=19, versions=(2, 7), flexible=5)
class CreateTopicsResponse:
    """Results of the creations."""

    throttle_time_ms: int = int32(default=0)
    topics: Sequence[CreatableTopicResult] = array(CreatableTopicResult)


@struct()
class DeleteTopicState:
    """Topic to delete, by name or by id."""

    name: str | None = string(nullable=True, default=None)
    topic_id: TopicId = uuid()


@message(key=20, versions=(1, 6), flexible=4)
class DeleteTopicsRequest:
    """Deletes topics."""

    topic_names: Sequence[str] = array(string, until=5, default=())
    topics: Sequence[DeleteTopicState] = array(DeleteTopicState, since=6, default=())
    timeout_ms: int = int32()


@struct()
class DeletableTopicResult:
    """Result of deleting one topic."""

    name: str | None = string(nullable=6)
    topic_id: TopicId = uuid(since=6, default=NO_TOPIC_ID)
    error_code: int = int16()
    error_message: str | None = string(since=5, nullable=True, default=None)


@message(key=20, versions=(1, 6), flexible=4)
class DeleteTopicsResponse:
    """Results of the deletions."""

    throttle_time_ms: int = int32(default=0)
    responses: Sequence[DeletableTopicResult] = array(DeletableTopicResult)


@struct()
class CreatePartitionsAssignment:
    """Replica placement of one new partition."""

    broker_ids: Sequence[int] = array(int32, default=())


@struct()
class CreatePartitionsTopic:
    """New total number of partitions of a topic."""

    name: str = string()
    count: int = int32()
    assignments: Sequence[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable=True
    )


@message(key=37, versions=(0, 3), flexible=2)
class CreatePartitionsRequest:
    """Adds partitions to topics."""

    topics: Sequence[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@struct()
class CreatePartitionsTopicResult:
    """Result of adding partitions to one topic."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)


@message(key=37, versions=(0, 3), flexible=2)
class CreatePartitionsResponse:
    """Results per topic."""

    throttle_time_ms: int = int32(default=0)
    results: Sequence[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
