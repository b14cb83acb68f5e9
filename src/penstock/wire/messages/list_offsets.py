"""Positions in a log: ListOffsets (2), OffsetForLeaderEpoch (23), DeleteRecords (21).

ListOffsets v4 fences by leader epoch, v6 is flexible, v10 carries a timeout; its special timestamps
are the handler's business. OffsetForLeaderEpoch v3 names the replica that asks.

What holds what:

- ListOffsetsRequest > ListOffsetsTopic > ListOffsetsPartition
- ListOffsetsResponse > ListOffsetsTopicResponse > ListOffsetsPartitionResponse
- OffsetForLeaderEpochRequest > OffsetForLeaderTopic > OffsetForLeaderPartition
- OffsetForLeaderEpochResponse > OffsetForLeaderTopicResult > OffsetForLeaderEpochEndOffset
- DeleteRecordsRequest > DeleteRecordsTopic > DeleteRecordsPartition
- DeleteRecordsResponse > DeleteRecordsTopicResult > DeleteRecordsPartitionResult
"""

from collections.abc import Sequence

from penstock.wire.schema import array, int8, int16, int32, int64, message, string, struct


@struct()
class ListOffsetsPartition:
    """The time (or special timestamp) whose offset is wanted."""

    partition_index: int = int32()
    current_leader_epoch: int = int32(since=4, default=-1)
    timestamp: int = int64()


@struct()
class ListOffsetsTopic:
    """A topic's part of the question."""

    name: str = string()
    partitions: Sequence[ListOffsetsPartition] = array(ListOffsetsPartition)


@message(key=2, versions=(1, 11), flexible=6)
class ListOffsetsRequest:
    """Asks for the offsets that belong to timestamps."""

    replica_id: int = int32()
    isolation_level: int = int8(since=2, default=0)
    topics: Sequence[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32(since=10, default=0)


@struct()
class ListOffsetsPartitionResponse:
    """The offset found, or -1 where there is none."""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32(since=4, default=-1)


@struct()
class ListOffsetsTopicResponse:
    """A topic's part of the answer."""

    name: str = string()
    partitions: Sequence[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@message(key=2, versions=(1, 11), flexible=6)
class ListOffsetsResponse:
    """The offsets that belong to timestamps."""

    throttle_time_ms: int = int32(since=2, default=0)
    topics: Sequence[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)


@struct()
class OffsetForLeaderPartition:
    """The epoch whose end is wanted."""

    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


@struct()
class OffsetForLeaderTopic:
    """A topic's part of the question."""

    topic: str = string()
    partitions: Sequence[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@message(key=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochRequest:
    """Asks where leader epochs ended, to find where histories part."""

    replica_id: int = int32(since=3, default=-2)
    topics: Sequence[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@struct()
class OffsetForLeaderEpochEndOffset:
    """The largest epoch not above the one asked for, and its end."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@struct()
class OffsetForLeaderTopicResult:
    """A topic's part of the answer."""

    topic: str = string()
    partitions: Sequence[OffsetForLeaderEpochEndOffset] = array(OffsetForLeaderEpochEndOffset)


@message(key=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochResponse:
    """Where leader epochs ended."""

    throttle_time_ms: int = int32(default=0)
    topics: Sequence[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)


@struct()
class DeleteRecordsPartition:
    """The offset below which records go; -1 is the high watermark."""

    partition_index: int = int32()
    offset: int = int64()


@struct()
class DeleteRecordsTopic:
    """A topic's part of the request."""

    name: str = string()
    partitions: Sequence[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@message(key=21, versions=(0, 2), flexible=2)
class DeleteRecordsRequest:
    """Moves the start of logs forward."""

    topics: Sequence[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@struct()
class DeleteRecordsPartitionResult:
    """Where the log starts now."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@struct()
class DeleteRecordsTopicResult:
    """A topic's part of the answer."""

    name: str = string()
    partitions: Sequence[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@message(key=21, versions=(0, 2), flexible=2)
class DeleteRecordsResponse:
    """Where the logs start now."""

    throttle_time_ms: int = int32(default=0)
    topics: Sequence[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
