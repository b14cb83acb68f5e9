"""Transactions: messages of clients and tools.

InitProducerId (22), AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26), TxnOffsetCommit
(28), DescribeProducers (61), DescribeTransactions (65), ListTransactions (66). AddPartitionsToTxn
v4 takes several transactions and is for brokers; EndTxn v5 returns the next epoch (KIP-890).

WriteTxnMarkers (api 27), versions 1-2: a coordinator ends a transaction in the logs. v2 has the
transaction version of the marker (KIP-1228).
"""

from collections.abc import Sequence

from penstock.wire.schema import array, boolean, int8, int16, int32, int64, message, string, struct


@struct()
class WritableTxnMarkerTopic:
    """Partitions of one topic that get the marker."""

    name: str = string()
    partition_indexes: Sequence[int] = array(int32, default=())


@struct()
class WritableTxnMarker:
    """End of one transaction: `transaction_result` is true for commit."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: Sequence[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8(since=2, default=0)


@message(key=27, versions=(1, 2), flexible=1)
class WriteTxnMarkersRequest:
    """Writes commit and abort markers into partitions."""

    markers: Sequence[WritableTxnMarker] = array(WritableTxnMarker)


@struct()
class WritableTxnMarkerPartitionResult:
    """Result for one partition."""

    partition_index: int = int32()
    error_code: int = int16()


@struct()
class WritableTxnMarkerTopicResult:
    """Results of one topic."""

    name: str = string()
    partitions: Sequence[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@struct()
class WritableTxnMarkerResult:
    """Results of one producer."""

    producer_id: int = int64()
    topics: Sequence[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@message(key=27, versions=(1, 2), flexible=1)
class WriteTxnMarkersResponse:
    """Results of writing the markers."""

    markers: Sequence[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)


@message(key=22, versions=(0, 5), flexible=2)
class InitProducerIdRequest:
    """Requests a producer id, or the next epoch of one."""

    transactional_id: str | None = string(nullable=True)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(since=3, default=-1)
    producer_epoch: int = int16(since=3, default=-1)


@message(key=22, versions=(0, 5), flexible=2)
class InitProducerIdResponse:
    """Producer id and epoch to write with."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()


@struct()
class AddPartitionsToTxnTopic:
    """Partitions of one topic to add to the transaction."""

    name: str = string()
    partitions: Sequence[int] = array(int32, default=())


@struct()
class AddPartitionsToTxnTransaction:
    """Transaction and partitions to add, or to verify as added."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = boolean(default=False)
    topics: Sequence[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


@message(key=24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnRequest:
    """Adds partitions to transactions."""

    v3_and_below_transactional_id: str = string(until=3, default="")
    v3_and_below_producer_id: int = int64(until=3, default=0)
    v3_and_below_producer_epoch: int = int16(until=3, default=0)
    v3_and_below_topics: Sequence[AddPartitionsToTxnTopic] = array(
        AddPartitionsToTxnTopic, until=3, default=()
    )
    transactions: Sequence[AddPartitionsToTxnTransaction] = array(
        AddPartitionsToTxnTransaction, since=4, default=()
    )


@struct()
class AddPartitionsToTxnPartitionResult:
    """Result of adding one partition."""

    partition_index: int = int32()
    partition_error_code: int = int16()


@struct()
class AddPartitionsToTxnTopicResult:
    """Results of one topic."""

    name: str = string()
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult] = array(
        AddPartitionsToTxnPartitionResult
    )


@struct()
class AddPartitionsToTxnResult:
    """Results of one transaction."""

    transactional_id: str = string()
    topic_results: Sequence[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)


@message(key=24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnResponse:
    """Results of the additions."""

    throttle_time_ms: int = int32(default=0)
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, until=3, default=()
    )
    error_code: int = int16(since=4, default=0)
    results_by_transaction: Sequence[AddPartitionsToTxnResult] = array(
        AddPartitionsToTxnResult, since=4, default=()
    )


@message(key=25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnRequest:
    """Adds the offsets of a group to a transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@message(key=25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnResponse:
    """Result of the addition."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()


@message(key=26, versions=(0, 5), flexible=3)
class EndTxnRequest:
    """Commits or aborts a transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@message(key=26, versions=(0, 5), flexible=3)
class EndTxnResponse:
    """Result, and from v5 on the producer epoch of the next transaction."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    producer_id: int = int64(since=5, default=-1)
    producer_epoch: int = int16(since=5, default=-1)


@struct()
class TxnOffsetCommitRequestPartition:
    """Offset to commit with the transaction."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=2, default=-1)
    committed_metadata: str | None = string(nullable=True)


@struct()
class TxnOffsetCommitRequestTopic:
    """Part of the commit for one topic."""

    name: str = string()
    partitions: Sequence[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


@message(key=28, versions=(0, 5), flexible=3)
class TxnOffsetCommitRequest:
    """Commits offsets of a group as part of a transaction."""

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32(since=3, default=-1)
    member_id: str = string(since=3, default="")
    group_instance_id: str | None = string(since=3, nullable=True, default=None)
    topics: Sequence[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


@struct()
class TxnOffsetCommitResponsePartition:
    """Result for one offset."""

    partition_index: int = int32()
    error_code: int = int16()


@struct()
class TxnOffsetCommitResponseTopic:
    """Results of one topic."""

    name: str = string()
    partitions: Sequence[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


@message(key=28, versions=(0, 5), flexible=3)
class TxnOffsetCommitResponse:
    """Results of the commit."""

    throttle_time_ms: int = int32(default=0)
    topics: Sequence[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)


@struct()
class DescribeProducersTopicRequest:
    """Requested partitions of one topic."""

    name: str = string()
    partition_indexes: Sequence[int] = array(int32, default=())


@message(key=61, versions=(0, 0), flexible=0)
class DescribeProducersRequest:
    """Requests the active producers of partitions."""

    topics: Sequence[DescribeProducersTopicRequest] = array(DescribeProducersTopicRequest)


@struct()
class ProducerState:
    """Producer whose state a partition holds."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


@struct()
class DescribeProducersPartitionResponse:
    """Producers of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    active_producers: Sequence[ProducerState] = array(ProducerState)


@struct()
class DescribeProducersTopicResponse:
    """Results of one topic."""

    name: str = string()
    partitions: Sequence[DescribeProducersPartitionResponse] = array(
        DescribeProducersPartitionResponse
    )


@message(key=61, versions=(0, 0), flexible=0)
class DescribeProducersResponse:
    """Active producers of partitions."""

    throttle_time_ms: int = int32(default=0)
    topics: Sequence[DescribeProducersTopicResponse] = array(DescribeProducersTopicResponse)


@message(key=65, versions=(0, 0), flexible=0)
class DescribeTransactionsRequest:
    """Requests descriptions of transactions."""

    transactional_ids: Sequence[str] = array(string, default=())


@struct()
class DescribeTransactionsTopicData:
    """Partitions of one topic in the transaction."""

    topic: str = string()
    partitions: Sequence[int] = array(int32, default=())


@struct()
class DescribeTransactionsTransactionState:
    """Description of one transaction, or an error."""

    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: Sequence[DescribeTransactionsTopicData] = array(DescribeTransactionsTopicData)


@message(key=65, versions=(0, 0), flexible=0)
class DescribeTransactionsResponse:
    """Descriptions of transactions."""

    throttle_time_ms: int = int32(default=0)
    transaction_states: Sequence[DescribeTransactionsTransactionState] = array(
        DescribeTransactionsTransactionState
    )


@message(key=66, versions=(0, 2), flexible=0)
class ListTransactionsRequest:
    """Requests a list of transactions, by state, producer, duration and name."""

    state_filters: Sequence[str] = array(string, default=())
    producer_id_filters: Sequence[int] = array(int64, default=())
    duration_filter: int = int64(since=1, default=-1)
    transactional_id_pattern: str | None = string(since=2, nullable=True, default=None)


@struct()
class ListTransactionsTransactionState:
    """Summary of a transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@message(key=66, versions=(0, 2), flexible=0)
class ListTransactionsResponse:
    """Transactions that this broker coordinates."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    unknown_state_filters: Sequence[str] = array(string, default=())
    transaction_states: Sequence[ListTransactionsTransactionState] = array(
        ListTransactionsTransactionState
    )
