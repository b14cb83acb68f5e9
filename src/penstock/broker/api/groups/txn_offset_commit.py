"""TxnOffsetCommit (api 28), versions 0-5: offsets that are committed with a transaction.

Two coordinators take part. First the transaction coordinator verifies that the group's offsets
belong to the transaction: from v5 on the request adds them (KIP-890), before that AddOffsetsToTxn
did. Then the group's shard stores the offsets as pending until the marker arrives. A guard prevents
pending offsets after the marker (see `coordinator.txn_verification`).
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.base.state_machine import Decision, Token
from penstock.broker.api.call import Call
from penstock.broker.api.context import TransactionContext
from penstock.broker.api.coordinator_calls import caller_of, may_group, may_txn
from penstock.broker.api.groups.offset_commit import joined
from penstock.broker.api.response_rows import may
from penstock.broker.api.route_row import Operation
from penstock.coordinator.runtime.internal_topics import OFFSETS
from penstock.coordinator.txn_verification import ANY_EPOCH
from penstock.state.groups.error_replies import refusal
from penstock.state.groups.shard import GroupShard
from penstock.state.transactions.records import ProducerEpoch
from penstock.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

ADDS_SINCE = 5
ABORTABLE_SINCE = 4


async def txn_offset_commit(
    ctx: TransactionContext, call: Call, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    refused_rows: list[TxnOffsetCommitResponseTopic] = []
    try:
        if not may_txn(ctx, call, Operation.WRITE, request.transactional_id):
            raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not may_group(ctx, call, Operation.READ, request.group_id):
            raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        kept = [t for topic in request.topics if (t := _known(ctx, call, topic, refused_rows))]
        if refused_rows and not kept:
            return TxnOffsetCommitResponse(topics=refused_rows)
        request.topics = kept
        reply = await _commit(ctx, call, request)
    except Refused as refused:
        reply = refusal("TxnOffsetCommit", request, _in_its_words(refused, call), call.version)
    response = joined(reply, refused_rows)
    assert isinstance(response, TxnOffsetCommitResponse)
    return response


async def _commit(ctx: TransactionContext, call: Call, request: TxnOffsetCommitRequest) -> Any:
    index = ctx.groups.host.index_of(request.group_id)
    producer = ProducerEpoch(request.producer_id, request.producer_epoch)
    adds = call.version >= ADDS_SINCE
    epoch = producer.epoch if adds else ANY_EPOCH
    guard = ctx.txns.guards.set((OFFSETS.name, index, producer.id), epoch)
    try:
        if adds or ctx.configs.flag("transaction.partition.verification.enable"):
            place = (OFFSETS.name, index)
            found = await ctx.txns.enter(request.transactional_id, producer, [place], adds)
            if found:
                raise found[place]
        if guard.is_broken:
            raise Refused(ErrorCode.INVALID_TXN_STATE, "the transaction has ended")
        caller = caller_of(ctx, call)

        def decide(shard: GroupShard, token: Token, now_ms: int) -> Decision:
            return shard.handle("TxnOffsetCommit", request, token, caller, now_ms)

        waiting = ctx.groups.host.ask(request.group_id, decide)
    finally:
        ctx.txns.guards.lift(guard)
    return await waiting


def _in_its_words(refused: Refused, call: Call) -> Refused:
    """Converts a refusal to error codes that clients of this request know."""
    code = refused.code
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code is ErrorCode.TRANSACTION_ABORTABLE and call.version < ABORTABLE_SINCE:
        code = ErrorCode.INVALID_TXN_STATE
    return Refused(code, refused.message)


def _known(
    ctx: TransactionContext,
    call: Call,
    topic: TxnOffsetCommitRequestTopic,
    refused_rows: list[TxnOffsetCommitResponseTopic],
) -> TxnOffsetCommitRequestTopic | None:
    """Returns the part of a topic that exists and is permitted; the rest becomes refused rows."""
    if may(ctx, call, Operation.READ, topic.name):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        known = ctx.image.topics.get(topic.name)
        count = len(known.partitions) if known is not None else 0
    else:
        code, count = ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0
    bad = [row for row in topic.partitions if not 0 <= row.partition_index < count]
    if bad:
        refused_rows.append(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=row.partition_index, error_code=code
                    )
                    for row in bad
                ],
            )
        )
        topic.partitions = [row for row in topic.partitions if 0 <= row.partition_index < count]
    return topic if topic.partitions else None
