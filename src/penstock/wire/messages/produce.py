"""Produce (api 0), versions 3-13.

v3 brought record batches (magic 2), v5 the log start offset, v8 the refused records, v9
flexible, v10 the new leader in the response (KIP-951), v13 topic ids instead of names (KIP-516).
The response's classes are built once per produced batch, so they take positional arguments.
"""

from collections.abc import Sequence

from penstock.base.ids import NO_TOPIC_ID, TopicId
from penstock.wire.messages.fetch import LeaderIdAndEpoch, NodeEndpoint
from penstock.wire.schema import (
    array,
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
class PartitionProduceData:
    """Encoded record batch for one partition."""

    index: int = int32()
    records: memoryview | None = records(nullable=True)


@struct()
class TopicProduceData:
    """Part of a produce request for one topic."""

    name: str = string(until=12, default="")
    topic_id: TopicId = uuid(since=13, default=NO_TOPIC_ID)
    partition_data: Sequence[PartitionProduceData] = array(PartitionProduceData)


@message(key=0, versions=(3, 13), flexible=9)
class ProduceRequest:
    """Appends record batches to partitions."""

    transactional_id: str | None = string(nullable=True, default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: Sequence[TopicProduceData] = array(TopicProduceData)


@struct()
class BatchIndexAndErrorMessage:
    """Invalid record of a refused batch, with the error."""

    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable=True, default=None)


@struct(kw_only=False)
class PartitionProduceResponse:
    """Offset at which a batch was appended, or an error."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64(since=5, default=-1)
    record_errors: Sequence[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, since=8, default=()
    )
    error_message: str | None = string(since=8, nullable=True, default=None)
    current_leader: LeaderIdAndEpoch | None = nested(
        LeaderIdAndEpoch, since=10, default=None, tag=0
    )


@struct(kw_only=False)
class TopicProduceResponse:
    """Results of one topic."""

    name: str = string(until=12)
    topic_id: TopicId = uuid(since=13)
    partition_responses: Sequence[PartitionProduceResponse] = array(PartitionProduceResponse)


@message(key=0, versions=(3, 13), flexible=9, kw_only=False)
class ProduceResponse:
    """Results of all batches of a produce request."""

    responses: Sequence[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32(default=0)
    node_endpoints: Sequence[NodeEndpoint] = array(NodeEndpoint, since=10, default=(), tag=0)
