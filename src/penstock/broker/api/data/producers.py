"""InitProducerId (api 22), versions 0-5; DescribeProducers (61), version 0.

InitProducerId gives an idempotent producer a unique id, at epoch 0. v2 flexible; v3 lets a producer
name its previous id (KIP-360): without a transactional id it gets a new one, as in Kafka. With a
transactional id, the transaction coordinator fences the previous producer of that id.

DescribeProducers lists the producer states in a partition's log.
"""

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.call import Call
from penstock.broker.api.context import TransactionContext
from penstock.broker.api.coordinator_calls import caller_of, may_txn
from penstock.broker.api.response_rows import led_partition, may, may_cluster, may_write_some
from penstock.broker.api.route_row import Operation
from penstock.cluster.metadata import topics
from penstock.wire.messages.transactions import (
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProducerState,
)

NONE_GIVEN = -1
LAST_SEQUENCE = 1
"""Index of the last sequence number in a batch of `log.producers`."""


async def init_producer_id(
    ctx: TransactionContext, call: Call, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    try:
        _check(ctx, call, request)
        if request.transactional_id is not None:
            return await _init_transactional(ctx, call, request, request.transactional_id)
        producer_id = await ctx.producer_ids.next()
    except Refused as refused:
        return InitProducerIdResponse(error_code=refused.code, producer_epoch=NONE_GIVEN)
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )


async def _init_transactional(
    ctx: TransactionContext, call: Call, request: InitProducerIdRequest, transactional_id: str
) -> InitProducerIdResponse:
    await ctx.producer_ids.ensure_available()
    response = await ctx.txns.handle(
        transactional_id, "InitProducerId", request, caller_of(ctx, call)
    )
    assert isinstance(response, InitProducerIdResponse)
    return response


def _check(ctx: TransactionContext, call: Call, request: InitProducerIdRequest) -> None:
    transactional_id = request.transactional_id
    if transactional_id is not None:
        if not may_txn(ctx, call, Operation.WRITE, transactional_id):
            raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not transactional_id:
            raise Refused(ErrorCode.INVALID_REQUEST)
    elif not may_cluster(ctx, call, Operation.IDEMPOTENT_WRITE) and not may_write_some(ctx, call):
        raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == NONE_GIVEN) != (request.producer_epoch == NONE_GIVEN):
        raise Refused(ErrorCode.INVALID_REQUEST)


# -- DescribeProducers ------------------------------------------------------------------------


def describe_producers(
    ctx: TransactionContext, call: Call, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersTopicResponse(
                name=topic.name,
                partitions=[
                    _describe(ctx, call, topic.name, index)
                    for index in dict.fromkeys(topic.partition_indexes)
                ],
            )
            for topic in request.topics
        ]
    )


def _describe(
    ctx: TransactionContext, call: Call, name: str, index: int
) -> DescribeProducersPartitionResponse:
    row = DescribeProducersPartitionResponse(
        partition_index=index, error_code=ErrorCode.NONE, active_producers=()
    )
    try:
        topics.check_name(name)
        if not may(ctx, call, Operation.READ, name):
            raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        log = led_partition(ctx, name, index).log
    except Refused as refused:
        row.error_code = refused.code
        row.error_message = refused.message
        return row
    row.active_producers = [
        ProducerState(
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            last_sequence=producer.batches[-1][LAST_SEQUENCE] if producer.batches else -1,
            last_timestamp=producer.timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.txn_first_offset,
        )
        for producer_id, producer in log.producers.by_id.items()
    ]
    return row
