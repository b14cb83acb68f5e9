"""Committed offsets of a group: OffsetCommit (8), OffsetFetch (9), OffsetDelete (47).

OffsetCommit v9 lets a KIP-848 member commit, v10 has topic ids. OffsetFetch v2 allows null for all
topics, v8 takes several groups at once (from then on the flat fields are empty), v10 has topic
ids.
"""

from collections.abc import Sequence

from penstock.base.ids import NO_TOPIC_ID, TopicId
from penstock.wire.schema import array, boolean, int16, int32, int64, message, string, struct, uuid


@struct()
class OffsetCommitRequestPartition:
    """Offset to commit for one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=6, default=-1)
    committed_metadata: str | None = string(nullable=True)


@struct()
class OffsetCommitRequestTopic:
    """Part of a commit for one topic."""

    name: str = string(until=9, default="")
    topic_id: TopicId = uuid(since=10, default=NO_TOPIC_ID)
    partitions: Sequence[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@message(key=8, versions=(2, 10), flexible=8)
class OffsetCommitRequest:
    """Commits offsets of a group."""

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    retention_time_ms: int = int64(until=4, default=-1)
    group_instance_id: str | None = string(since=7, nullable=True, default=None)
    topics: Sequence[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@struct(kw_only=False)
class OffsetCommitResponsePartition:
    """Result of committing one offset."""

    partition_index: int = int32()
    error_code: int = int16()


@struct()
class OffsetCommitResponseTopic:
    """Results of one topic."""

    name: str = string(until=9, default="")
    topic_id: TopicId = uuid(since=10, default=NO_TOPIC_ID)
    partitions: Sequence[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@message(key=8, versions=(2, 10), flexible=8)
class OffsetCommitResponse:
    """Results of the commit."""

    throttle_time_ms: int = int32(since=3, default=0)
    topics: Sequence[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)


@struct()
class OffsetFetchRequestTopic:
    """Requested partitions of one topic, before v8."""

    name: str = string()
    partition_indexes: Sequence[int] = array(int32, default=())


@struct()
class OffsetFetchRequestTopics:
    """Requested partitions of one topic, from v8 on."""

    name: str = string(until=9, default="")
    topic_id: TopicId = uuid(since=10, default=NO_TOPIC_ID)
    partition_indexes: Sequence[int] = array(int32, default=())


@struct()
class OffsetFetchRequestGroup:
    """Part of the request for one group; null topics means all committed offsets."""

    group_id: str = string()
    member_id: str | None = string(since=9, nullable=True, default=None)
    member_epoch: int = int32(since=9, default=-1)
    topics: Sequence[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, nullable=True
    )


@message(key=9, versions=(1, 10), flexible=6)
class OffsetFetchRequest:
    """Requests the committed offsets of a group."""

    group_id: str = string(until=7, default="")
    topics: Sequence[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, until=7, nullable=2, default=()
    )
    groups: Sequence[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8, default=())
    require_stable: bool = boolean(since=7, default=False)


@struct()
class OffsetFetchResponsePartition:
    """Committed offset, before v8."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=5, default=-1)
    metadata: str | None = string(nullable=True)
    error_code: int = int16()


@struct()
class OffsetFetchResponseTopic:
    """Results of one topic, before v8."""

    name: str = string()
    partitions: Sequence[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


@struct()
class OffsetFetchResponsePartitions:
    """Committed offset, from v8 on; -1 without one."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1)
    metadata: str | None = string(nullable=True)
    error_code: int = int16()


@struct()
class OffsetFetchResponseTopics:
    """Results of one topic, from v8 on."""

    name: str = string(until=9, default="")
    topic_id: TopicId = uuid(since=10, default=NO_TOPIC_ID)
    partitions: Sequence[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions)


@struct()
class OffsetFetchResponseGroup:
    """Committed offsets of one group, or an error."""

    group_id: str = string()
    topics: Sequence[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics)
    error_code: int = int16(default=0)


@message(key=9, versions=(1, 10), flexible=6)
class OffsetFetchResponse:
    """Committed offsets of a group, or of several."""

    throttle_time_ms: int = int32(since=3, default=0)
    topics: Sequence[OffsetFetchResponseTopic] = array(
        OffsetFetchResponseTopic, until=7, default=()
    )
    error_code: int = int16(since=2, until=7, default=0)
    groups: Sequence[OffsetFetchResponseGroup] = array(
        OffsetFetchResponseGroup, since=8, default=()
    )


@struct()
class OffsetDeleteRequestPartition:
    """Partition whose committed offset is to be deleted."""

    partition_index: int = int32()


@struct()
class OffsetDeleteRequestTopic:
    """Part of the request for one topic."""

    name: str = string()
    partitions: Sequence[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@message(key=47, versions=(0, 0), flexible=None)
class OffsetDeleteRequest:
    """Deletes committed offsets of a group."""

    group_id: str = string()
    topics: Sequence[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


@struct()
class OffsetDeleteResponsePartition:
    """Result of deleting one offset."""

    partition_index: int = int32()
    error_code: int = int16()


@struct()
class OffsetDeleteResponseTopic:
    """Results of one topic."""

    name: str = string()
    partitions: Sequence[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@message(key=47, versions=(0, 0), flexible=None)
class OffsetDeleteResponse:
    """Results of the deletions."""

    error_code: int = int16()
    throttle_time_ms: int = int32(default=0)
    topics: Sequence[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
