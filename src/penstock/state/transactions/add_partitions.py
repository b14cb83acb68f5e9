"""AddPartitionsToTxn requests and responses, and the error codes that each version understands.

A request up to v3 is one transaction of a client. From v4 on it is a batch sent by a broker, whose
transactions may belong to several shards. Handlers pass one `AddPartitionsToTxnTransaction` at a
time to its shard and join the results here.
"""

from collections.abc import Sequence
from typing import Final

from penstock.base.errors import ErrorCode, Refused
from penstock.state.transactions.records import Partition
from penstock.wire.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

BATCHED_SINCE: Final = 4

_KNOWS_FENCED_SINCE: Final = {
    "InitProducerId": 4,
    "AddPartitionsToTxn": 2,
    "AddOffsetsToTxn": 2,
    "EndTxn": 2,
}
_PRODUCE_KNOWS_ABORTABLE_SINCE: Final = 11
PRODUCE_ADDS_SINCE: Final = 12
"""From this version on Produce adds its partition to the transaction (KIP-890); before, it only
verifies it."""

_NOT_NOW: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NETWORK_EXCEPTION,
)


def for_version(refused: Refused, api: str, version: int) -> Refused:
    """Maps a refusal to a version's codes: older clients do not know PRODUCER_FENCED (KIP-588)."""
    if refused.code is ErrorCode.PRODUCER_FENCED and version < _KNOWS_FENCED_SINCE[api]:
        return Refused(ErrorCode.INVALID_PRODUCER_EPOCH, refused.message)
    return refused


def for_produce(code: ErrorCode, version: int) -> ErrorCode:
    """Maps a coordinator's refusal of the partition to Produce's error code (KIP-890).

    Transient codes become an error that every producer retries without a metadata refresh.
    """
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _PRODUCE_KNOWS_ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version < PRODUCE_ADDS_SINCE:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return ErrorCode.NOT_ENOUGH_REPLICAS if code in _NOT_NOW else code


def transactions_of(
    request: AddPartitionsToTxnRequest, version: int
) -> Sequence[AddPartitionsToTxnTransaction]:
    if version >= BATCHED_SINCE:
        return request.transactions
    return (
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        ),
    )


def response_of(
    results: Sequence[AddPartitionsToTxnResult], version: int
) -> AddPartitionsToTxnResponse:
    if version >= BATCHED_SINCE:
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    assert len(results) == 1
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)


def partitions_of(transaction: AddPartitionsToTxnTransaction) -> list[Partition]:
    pairs = ((topic.name, index) for topic in transaction.topics for index in topic.partitions)
    return list(dict.fromkeys(pairs))


def result_of(
    transaction: AddPartitionsToTxnTransaction, codes: dict[Partition, ErrorCode]
) -> AddPartitionsToTxnResult:
    """Result of one transaction: the code of each partition, NONE where none is given."""
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=codes.get((topic.name, index), ErrorCode.NONE),
                    )
                    for index in dict.fromkeys(topic.partitions)
                ],
            )
            for topic in transaction.topics
        ],
    )


def refused_result(
    transaction: AddPartitionsToTxnTransaction, code: ErrorCode
) -> AddPartitionsToTxnResult:
    """Result with the same code for every partition, for a transaction that was refused."""
    return result_of(transaction, dict.fromkeys(partitions_of(transaction), code))
