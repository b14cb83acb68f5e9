"""Start offsets of share groups.

DescribeShareGroupOffsets (90), AlterShareGroupOffsets (91), DeleteShareGroupOffsets (92).
Describe v1 adds the lag (KIP-1226).
"""

from collections.abc import Sequence

from penstock.base.ids import TopicId
from penstock.wire.schema import array, int16, int32, int64, message, string, struct, uuid


@struct()
class DescribeShareGroupOffsetsRequestTopic:
    """Requested partitions of one topic."""

    topic_name: str = string()
    partitions: Sequence[int] = array(int32, default=())


@struct()
class DescribeShareGroupOffsetsRequestGroup:
    """Part of the request for one group; null topics means all."""

    group_id: str = string()
    topics: Sequence[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, nullable=True
    )


@message(key=90, versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsRequest:
    """Requests the start offsets of share groups."""

    groups: Sequence[DescribeShareGroupOffsetsRequestGroup] = array(
        DescribeShareGroupOffsetsRequestGroup
    )


@struct()
class DescribeShareGroupOffsetsResponsePartition:
    """Start offset of the group: the first record that it has not finished."""

    partition_index: int = int32()
    start_offset: int = int64()
    leader_epoch: int = int32()
    lag: int = int64(since=1, default=-1)
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)


@struct()
class DescribeShareGroupOffsetsResponseTopic:
    """Results of one topic."""

    topic_name: str = string()
    topic_id: TopicId = uuid()
    partitions: Sequence[DescribeShareGroupOffsetsResponsePartition] = array(
        DescribeShareGroupOffsetsResponsePartition
    )


@struct()
class DescribeShareGroupOffsetsResponseGroup:
    """Start offsets of one group."""

    group_id: str = string()
    topics: Sequence[DescribeShareGroupOffsetsResponseTopic] = array(
        DescribeShareGroupOffsetsResponseTopic
    )
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)


@message(key=90, versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsResponse:
    """Start offsets of share groups."""

    throttle_time_ms: int = int32(default=0)
    groups: Sequence[DescribeShareGroupOffsetsResponseGroup] = array(
        DescribeShareGroupOffsetsResponseGroup
    )


@struct()
class AlterShareGroupOffsetsRequestPartition:
    """New start offset of the group in one partition."""

    partition_index: int = int32()
    start_offset: int = int64()


@struct()
class AlterShareGroupOffsetsRequestTopic:
    """Part of the request for one topic."""

    topic_name: str = string()
    partitions: Sequence[AlterShareGroupOffsetsRequestPartition] = array(
        AlterShareGroupOffsetsRequestPartition
    )


@message(key=91, versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsRequest:
    """Changes the start offsets of an empty share group."""

    group_id: str = string()
    topics: Sequence[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic)


@struct()
class AlterShareGroupOffsetsResponsePartition:
    """Result of changing one start offset."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)


@struct()
class AlterShareGroupOffsetsResponseTopic:
    """Results of one topic."""

    topic_name: str = string()
    topic_id: TopicId = uuid()
    partitions: Sequence[AlterShareGroupOffsetsResponsePartition] = array(
        AlterShareGroupOffsetsResponsePartition
    )


@message(key=91, versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsResponse:
    """Results of the changes."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    responses: Sequence[AlterShareGroupOffsetsResponseTopic] = array(
        AlterShareGroupOffsetsResponseTopic
    )


@struct()
class DeleteShareGroupOffsetsRequestTopic:
    """Topic whose offsets are to be deleted."""

    topic_name: str = string()


@message(key=92, versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsRequest:
    """Deletes the offsets of topics of an empty share group."""

    group_id: str = string()
    topics: Sequence[DeleteShareGroupOffsetsRequestTopic] = array(
        DeleteShareGroupOffsetsRequestTopic
    )


@struct()
class DeleteShareGroupOffsetsResponseTopic:
    """Result of the deletion for one topic."""

    topic_name: str = string()
    topic_id: TopicId = uuid()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)


@message(key=92, versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsResponse:
    """Results of the deletions."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    responses: Sequence[DeleteShareGroupOffsetsResponseTopic] = array(
        DeleteShareGroupOffsetsResponseTopic
    )
