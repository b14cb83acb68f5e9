"""Transactions: AddPartitionsToTxn (api 24), versions 0-5; AddOffsetsToTxn (25), 0-4; EndTxn (26),
0-5; WriteTxnMarkers (27), 1-2; DescribeTransactions (65), 0; ListTransactions (66), 0-2.

Each request is passed to the shard of its transactional id after the check of permissions; the
shard's state machine is `penstock.state.transactions`. From v4 on AddPartitionsToTxn is a batch of
a broker, and from v5 on EndTxn returns the next epoch (KIP-890). TxnOffsetCommit is in
`offset_commit`, InitProducerId in `data.producers`, the verification of Produce in
`data.transactional_produce`.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.base.errors import ErrorCode, Refused
from penstock.base.state_machine import Decision, Token
from penstock.broker.api.call import Call
from penstock.broker.api.context import TransactionContext
from penstock.broker.api.coordinator_calls import (
    caller_of,
    gathered,
    may_group,
    may_txn,
    permitted_rows,
)
from penstock.broker.api.large_replies import answered, holder_of
from penstock.broker.api.response_rows import may, may_cluster
from penstock.broker.api.route_row import Operation
from penstock.coordinator.groups import compile_pattern
from penstock.coordinator.runtime.shard_host import ask
from penstock.coordinator.txn_markers import PartitionMarker
from penstock.state.transactions import add_partitions
from penstock.state.transactions.shard import TxnShard, refused_row, unknown_states
from penstock.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsTransactionState,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from penstock.state.transactions.records import Partition

ROWS_MAX = 10_000
"""Limits the transactional ids in one request."""
MARKERS_SECONDS_MAX = 5.0
"""Limits the wait for markers: later markers of the same broker wait behind them."""


# -- AddPartitionsToTxn -----------------------------------------------------------------------


async def add_partitions_to_txn(
    ctx: TransactionContext, call: Call, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    is_batch = call.version >= add_partitions.BATCHED_SINCE
    if is_batch and not may_cluster(ctx, call, Operation.CLUSTER_ACTION):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    transactions = add_partitions.transactions_of(request, call.version)
    results = await asyncio.gather(*[_add(ctx, call, txn, is_batch) for txn in transactions])
    return add_partitions.response_of(results, call.version)


async def _add(
    ctx: TransactionContext, call: Call, txn: AddPartitionsToTxnTransaction, is_batch: bool
) -> AddPartitionsToTxnResult:
    if not is_batch and not may_txn(ctx, call, Operation.WRITE, txn.transactional_id):
        return add_partitions.refused_result(txn, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    codes: dict[Partition, ErrorCode] = {}
    for topic, index in add_partitions.partitions_of(txn):
        if not is_batch and not may(ctx, call, Operation.WRITE, topic):
            codes[topic, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif ctx.image.partition(topic, index) is None:
            codes[topic, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if codes:
        # If some partitions cannot be added, none is.
        rest = dict.fromkeys(add_partitions.partitions_of(txn), ErrorCode.OPERATION_NOT_ATTEMPTED)
        return add_partitions.result_of(txn, {**rest, **codes})
    try:
        result = await ctx.txns.handle(
            txn.transactional_id, "AddPartitionsToTxn", txn, caller_of(ctx, call)
        )
    except Refused as refused:
        return add_partitions.refused_result(txn, refused.code)
    assert isinstance(result, AddPartitionsToTxnResult)
    return result


# -- AddOffsetsToTxn and EndTxn ---------------------------------------------------------------


async def add_offsets_to_txn(
    ctx: TransactionContext, call: Call, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    try:
        if not may_txn(ctx, call, Operation.WRITE, request.transactional_id):
            raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not may_group(ctx, call, Operation.READ, request.group_id):
            raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        await ctx.groups.ensure()  # The number of its partitions must be known.
        response = await ctx.txns.handle(
            request.transactional_id, "AddOffsetsToTxn", request, caller_of(ctx, call)
        )
    except Refused as refused:
        return AddOffsetsToTxnResponse(error_code=refused.code)
    assert isinstance(response, AddOffsetsToTxnResponse)
    return response


async def end_txn(ctx: TransactionContext, call: Call, request: EndTxnRequest) -> EndTxnResponse:
    try:
        if not may_txn(ctx, call, Operation.WRITE, request.transactional_id):
            raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        response = await ctx.txns.handle(
            request.transactional_id, "EndTxn", request, caller_of(ctx, call)
        )
    except Refused as refused:
        return EndTxnResponse(error_code=refused.code)
    assert isinstance(response, EndTxnResponse)
    return response


# -- WriteTxnMarkers --------------------------------------------------------------------------


async def write_txn_markers(
    ctx: TransactionContext, call: Call, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Writes markers for another broker's coordinator; answered when all are committed."""
    is_allowed = may_cluster(ctx, call, Operation.CLUSTER_ACTION)
    results: list[WritableTxnMarkerResult] = []
    pending: list[tuple[WritableTxnMarkerPartitionResult, asyncio.Future[ErrorCode]]] = []
    for sent in request.markers:
        marker = PartitionMarker(
            sent.producer_id,
            sent.producer_epoch,
            sent.transaction_result,
            sent.coordinator_epoch,
            sent.transaction_version,
        )
        topics = []
        for topic in sent.topics:
            cells = []
            for index in dict.fromkeys(topic.partition_indexes):
                cell = WritableTxnMarkerPartitionResult(
                    partition_index=index, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                )
                cells.append(cell)
                if is_allowed:
                    pending.append((cell, _write(ctx, marker, topic.name, index)))
            topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=cells))
        results.append(WritableTxnMarkerResult(producer_id=sent.producer_id, topics=topics))
    if pending:
        await asyncio.wait([future for _, future in pending], timeout=MARKERS_SECONDS_MAX)
    for cell, future in pending:
        # The other broker retries: a marker that is written twice changes nothing.
        cell.error_code = future.result() if future.done() else ErrorCode.REQUEST_TIMED_OUT
    return WriteTxnMarkersResponse(markers=results)


def _write(
    ctx: TransactionContext, marker: PartitionMarker, topic: str, index: int
) -> "asyncio.Future[ErrorCode]":
    future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def told(code: ErrorCode) -> None:
        if not future.done():
            future.set_result(code)

    ctx.txns.markers.write(marker, topic, index, told)
    return future


# -- queries ----------------------------------------------------------------------------------


async def describe_transactions(
    ctx: TransactionContext, call: Call, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    names = list(dict.fromkeys(request.transactional_ids[:ROWS_MAX]))
    replies = await gathered([_describe(ctx, call, name) for name in names])
    found = [
        refused_row(name, reply.code) if isinstance(reply, Refused) else reply
        for name, reply in zip(names, replies, strict=True)
    ]
    for row in found:
        row.topics = [t for t in row.topics if may(ctx, call, Operation.DESCRIBE, t.topic)]
    return DescribeTransactionsResponse(transaction_states=found)


def _describe(ctx: TransactionContext, call: Call, name: str) -> "asyncio.Future[Any] | Refused":
    if not may_txn(ctx, call, Operation.DESCRIBE, name):
        return Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    def decide(shard: TxnShard, token: Token, now_ms: int) -> Decision:
        return Decision(replies=((token, shard.describe_transaction(name)),))

    try:
        return ctx.txns.host.ask(name, decide)
    except Refused as refused:
        return refused


async def list_transactions(
    ctx: TransactionContext, call: Call, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    host = ctx.txns.host
    if host.is_loading:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ListTransactionsResponse(error_code=code, transaction_states=())
    pattern = request.transactional_id_pattern
    try:
        matches = compile_pattern(pattern) if pattern else None
    except Refused as refused:
        return ListTransactionsResponse(error_code=refused.code, transaction_states=())

    def decide(shard: TxnShard, token: Token, now_ms: int) -> Decision:
        return Decision(replies=((token, shard.list_transactions(request, now_ms, matches)),))

    def shown(
        row: ListTransactionsTransactionState,
    ) -> ListTransactionsTransactionState | None:
        return row if may_txn(ctx, call, Operation.DESCRIBE, row.transactional_id) else None

    replies = await gathered([ask(runtime, decide) for runtime, _ in host.active()])
    rows = await ctx.scheduler.do(holder_of(call), permitted_rows(replies, shown))
    response = ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=unknown_states(request),
        transaction_states=rows,
    )
    return await answered(ctx, call, response, len(rows))
