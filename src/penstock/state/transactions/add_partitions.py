"""AddPartitionsToTxn taken apart and put together, and the codes each version understands.

A request up to v3 is one transaction of a client; from v4 on it is a batch of brokers', whose
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
"""From this version of Produce on a write enters its partition (KIP-890); before, it is checked."""

_NOT_NOW: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NETWORK_EXCEPTION,
)


def for_version(refused: Refused, api: str, version: int) -> Refused:
    """The refusal in a version's words: older clients do not know PRODUCER_FENCED (KIP-588)."""
    if refused.code is ErrorCode.PRODUCER_FENCED and version < _KNOWS_FENCED_SINCE[api]:
        return Refused(ErrorCode.INVALID_PRODUCER_EPOCH, refused.message)
    return refused


def for_produce(code: ErrorCode, version: int) -> ErrorCode:
    """What Produce answers when the coordinator refuses the partition (KIP-890).

    What only means «not now» becomes an error that every producer retries without asking for
    metadata.
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
    """One transaction's result: the code of each partition, NONE where nothing is said."""
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
    """The same code for every partition, as when the transaction was refused."""
    return result_of(transaction, dict.fromkeys(partitions_of(transaction), code))
