"""Offsets of a log: ListOffsets (2), OffsetForLeaderEpoch (23), DeleteRecords (21).

ListOffsets v4 fences by leader epoch, v6 is flexible, v10 carries a timeout; the handler interprets
its special timestamps. OffsetForLeaderEpoch v3 has the id of the requesting replica.
"""

from collections.abc import Sequence

from penstock.wire.schema import array, int8, int16, int32, int64, message, string, struct


@struct()
class ListOffsetsPartition:
    """Timestamp, or special timestamp, to look up."""

    partition_index: int = int32()
    current_leader_epoch: int = int32(since=4, default=-1)
    timestamp: int = int64()


@struct()
class ListOffsetsTopic:
    """Part of the request for one topic."""

    name: str = string()
    partitions: Sequence[ListOffsetsPartition] = array(ListOffsetsPartition)


@message(key=2, versions=(1, 11), flexible=6)
class ListOffsetsRequest:
    """Requests the offsets of timestamps."""

    replica_id: int = int32()
    isolation_level: int = int8(since=2, default=0)
    topics: Sequence[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32(since=10, default=0)


@struct()
class ListOffsetsPartitionResponse:
    """Offset found, or -1 without one."""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32(since=4, default=-1)


@struct()
class ListOffsetsTopicResponse:
    """Results of one topic."""

    name: str = string()
    partitions: Sequence[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@message(key=2, versions=(1, 11), flexible=6)
class ListOffsetsResponse:
    """Offsets of the timestamps."""

    throttle_time_ms: int = int32(since=2, default=0)
    topics: Sequence[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)


@struct()
class OffsetForLeaderPartition:
    """Leader epoch to look up."""

    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


@struct()
class OffsetForLeaderTopic:
    """Part of the request for one topic."""

    topic: str = string()
    partitions: Sequence[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@message(key=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochRequest:
    """Requests the end offsets of leader epochs, to find where logs diverge."""

    replica_id: int = int32(since=3, default=-2)
    topics: Sequence[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@struct()
class OffsetForLeaderEpochEndOffset:
    """Largest epoch not above the requested one, and its end offset."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@struct()
class OffsetForLeaderTopicResult:
    """Results of one topic."""

    topic: str = string()
    partitions: Sequence[OffsetForLeaderEpochEndOffset] = array(OffsetForLeaderEpochEndOffset)


@message(key=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochResponse:
    """End offsets of leader epochs."""

    throttle_time_ms: int = int32(default=0)
    topics: Sequence[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)


@struct()
class DeleteRecordsPartition:
    """Offset below which records are deleted; -1 is the high watermark."""

    partition_index: int = int32()
    offset: int = int64()


@struct()
class DeleteRecordsTopic:
    """Part of the request for one topic."""

    name: str = string()
    partitions: Sequence[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@message(key=21, versions=(0, 2), flexible=2)
class DeleteRecordsRequest:
    """Advances the start offsets of logs."""

    topics: Sequence[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@struct()
class DeleteRecordsPartitionResult:
    """New start offset of the log."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@struct()
class DeleteRecordsTopicResult:
    """Results of one topic."""

    name: str = string()
    partitions: Sequence[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@message(key=21, versions=(0, 2), flexible=2)
class DeleteRecordsResponse:
    """New start offsets of the logs."""

    throttle_time_ms: int = int32(default=0)
    topics: Sequence[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
