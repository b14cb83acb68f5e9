"""A share group's start offsets.

DescribeShareGroupOffsets (90), AlterShareGroupOffsets (91), DeleteShareGroupOffsets (92).
Describe v1 adds the lag (KIP-1226).

What holds what:

- DescribeShareGroupOffsetsRequest > DescribeShareGroupOffsetsRequestGroup >
  DescribeShareGroupOffsetsRequestTopic
- DescribeShareGroupOffsetsResponse > DescribeShareGroupOffsetsResponseGroup >
  DescribeShareGroupOffsetsResponseTopic > DescribeShareGroupOffsetsResponsePartition
- AlterShareGroupOffsetsRequest > AlterShareGroupOffsetsRequestTopic >
  AlterShareGroupOffsetsRequestPartition
- AlterShareGroupOffsetsResponse > AlterShareGroupOffsetsResponseTopic >
  AlterShareGroupOffsetsResponsePartition
- DeleteShareGroupOffsetsRequest > DeleteShareGroupOffsetsRequestTopic
- DeleteShareGroupOffsetsResponse > DeleteShareGroupOffsetsResponseTopic
"""

from collections.abc import Sequence

from penstock.base.ids import TopicId
from penstock.wire.schema import array, int16, int32, int64, message, string, struct, uuid


@struct()
class DescribeShareGroupOffsetsRequestTopic:
    """Partitions of one topic asked about."""

    topic_name: str = string()
    partitions: Sequence[int] = array(int32, default=())


@struct()
class DescribeShareGroupOffsetsRequestGroup:
    """One group's question; null topics means all."""

    group_id: str = string()
    topics: Sequence[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, nullable=True
    )


@message(key=90, versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsRequest:
    """Asks where share groups have got to."""

    groups: Sequence[DescribeShareGroupOffsetsRequestGroup] = array(
        DescribeShareGroupOffsetsRequestGroup
    )


@struct()
class DescribeShareGroupOffsetsResponsePartition:
    """The first offset the group has not finished with."""

    partition_index: int = int32()
    start_offset: int = int64()
    leader_epoch: int = int32()
    lag: int = int64(since=1, default=-1)
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)


@struct()
class DescribeShareGroupOffsetsResponseTopic:
    """A topic's part of the answer."""

    topic_name: str = string()
    topic_id: TopicId = uuid()
    partitions: Sequence[DescribeShareGroupOffsetsResponsePartition] = array(
        DescribeShareGroupOffsetsResponsePartition
    )


@struct()
class DescribeShareGroupOffsetsResponseGroup:
    """One group's start offsets."""

    group_id: str = string()
    topics: Sequence[DescribeShareGroupOffsetsResponseTopic] = array(
        DescribeShareGroupOffsetsResponseTopic
    )
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)


@message(key=90, versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsResponse:
    """Where share groups have got to."""

    throttle_time_ms: int = int32(default=0)
    groups: Sequence[DescribeShareGroupOffsetsResponseGroup] = array(
        DescribeShareGroupOffsetsResponseGroup
    )


@struct()
class AlterShareGroupOffsetsRequestPartition:
    """Where the group shall start in one partition."""

    partition_index: int = int32()
    start_offset: int = int64()


@struct()
class AlterShareGroupOffsetsRequestTopic:
    """A topic's part of the request."""

    topic_name: str = string()
    partitions: Sequence[AlterShareGroupOffsetsRequestPartition] = array(
        AlterShareGroupOffsetsRequestPartition
    )


@message(key=91, versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsRequest:
    """Moves an empty share group."""

    group_id: str = string()
    topics: Sequence[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic)


@struct()
class AlterShareGroupOffsetsResponsePartition:
    """Whether one partition's start was moved."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)


@struct()
class AlterShareGroupOffsetsResponseTopic:
    """A topic's part of the answer."""

    topic_name: str = string()
    topic_id: TopicId = uuid()
    partitions: Sequence[AlterShareGroupOffsetsResponsePartition] = array(
        AlterShareGroupOffsetsResponsePartition
    )


@message(key=91, versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsResponse:
    """Which start offsets were moved."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    responses: Sequence[AlterShareGroupOffsetsResponseTopic] = array(
        AlterShareGroupOffsetsResponseTopic
    )


@struct()
class DeleteShareGroupOffsetsRequestTopic:
    """A topic the group shall forget."""

    topic_name: str = string()


@message(key=92, versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsRequest:
    """Makes an empty share group forget topics."""

    group_id: str = string()
    topics: Sequence[DeleteShareGroupOffsetsRequestTopic] = array(
        DeleteShareGroupOffsetsRequestTopic
    )


@struct()
class DeleteShareGroupOffsetsResponseTopic:
    """Whether one topic was forgotten."""

    topic_name: str = string()
    topic_id: TopicId = uuid()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)


@message(key=92, versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsResponse:
    """Which topics were forgotten."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    responses: Sequence[DeleteShareGroupOffsetsResponseTopic] = array(
        DeleteShareGroupOffsetsResponseTopic
    )
