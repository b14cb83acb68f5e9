"""Fetch (api 1), versions 4-18.

v4 isolation levels, v7 sessions (KIP-227), v9 leader epochs, v11 racks (KIP-392), v12 flexible and
diverging epochs (KIP-595), v13 topic ids (KIP-516), v15 the replica's state as a tag (KIP-903), v16
node endpoints (KIP-951), v17 directory ids, v18 the follower's high watermark (KIP-1166). The
response's inner classes are built on every fetch, so they take positional arguments.
"""

from collections.abc import Sequence

from penstock.base.ids import NO_TOPIC_ID, TopicId
from penstock.wire.schema import (
    Records,
    array,
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


@struct()
class FetchPartition:
    """Fetch offset and size limit for one partition."""

    partition: int = int32()
    current_leader_epoch: int = int32(since=9, default=-1)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(since=12, default=-1)
    log_start_offset: int = int64(since=5, default=-1)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid(since=17, default=NO_TOPIC_ID, tag=0)
    high_watermark: int = int64(since=18, default=9223372036854775807, tag=1)


@struct()
class FetchTopic:
    """Part of a fetch request for one topic."""

    topic: str = string(until=12, default="")
    topic_id: TopicId = uuid(since=13, default=NO_TOPIC_ID)
    partitions: Sequence[FetchPartition] = array(FetchPartition)


@struct()
class FetchForgottenTopic:
    """Partitions that leave the fetch session."""

    topic: str = string(until=12, default="")
    topic_id: TopicId = uuid(since=13, default=NO_TOPIC_ID)
    partitions: Sequence[int] = array(int32, default=())


@struct()
class FetchReplicaState:
    """Broker id and epoch of a fetching replica; not sent by consumers."""

    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


@message(key=1, versions=(4, 18), flexible=12)
class FetchRequest:
    """Reads record batches, waiting for the minimum of bytes."""

    replica_id: int = int32(until=14, default=-1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    isolation_level: int = int8(default=0)
    session_id: int = int32(since=7, default=0)
    session_epoch: int = int32(since=7, default=-1)
    topics: Sequence[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: Sequence[FetchForgottenTopic] = array(
        FetchForgottenTopic, since=7, default=()
    )
    rack_id: str = string(since=11, default="")
    cluster_id: str | None = string(since=12, nullable=True, default=None, tag=0)
    replica_state: FetchReplicaState | None = nested(
        FetchReplicaState, since=15, default=None, tag=1
    )


@struct()
class AbortedTransaction:
    """Producer whose records from this offset on must be skipped."""

    producer_id: int = int64()
    first_offset: int = int64()


@struct()
class FetchEpochEndOffset:
    """Epoch and end offset at which the follower diverges from the leader."""

    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@struct()
class LeaderIdAndEpoch:
    """Current leader of the partition and its epoch."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


@struct()
class FetchSnapshotId:
    """Snapshot to fetch instead, in a metadata log."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@struct(kw_only=False)
class FetchPartitionData:
    """Record batches of one partition, with its high watermark and offsets."""

    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64()
    log_start_offset: int = int64(since=5)
    aborted_transactions: Sequence[AbortedTransaction] | None = array(
        AbortedTransaction, nullable=True
    )
    preferred_read_replica: int = int32(since=11)
    records: Records | None = records(nullable=True)
    diverging_epoch: FetchEpochEndOffset | None = nested(
        FetchEpochEndOffset, since=12, default=None, tag=0
    )
    current_leader: LeaderIdAndEpoch | None = nested(
        LeaderIdAndEpoch, since=12, default=None, tag=1
    )
    snapshot_id: FetchSnapshotId | None = nested(FetchSnapshotId, since=12, default=None, tag=2)


@struct(kw_only=False)
class FetchableTopicResponse:
    """Fetched data of one topic."""

    topic: str = string(until=12)
    topic_id: TopicId = uuid(since=13)
    partitions: Sequence[FetchPartitionData] = array(FetchPartitionData)


@struct()
class NodeEndpoint:
    """Endpoint of a leader named in this response."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable=True, default=None)


@message(key=1, versions=(4, 18), flexible=12)
class FetchResponse:
    """Fetched records; within a session only of partitions that changed."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(since=7, default=0)
    session_id: int = int32(since=7, default=0)
    responses: Sequence[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: Sequence[NodeEndpoint] = array(NodeEndpoint, since=16, default=(), tag=0)
