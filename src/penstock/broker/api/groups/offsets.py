"""Committed offsets: OffsetCommit (api 8), versions 2-10; OffsetFetch (9), 1-10; OffsetDelete
(47), 0.

The group's shard stores and reads offsets. These handlers check the existence of topics and the
caller's permissions, which the shard does not know, and join refused rows and the shard's rows to
one response. OffsetCommit and OffsetFetch v10 name topics by id; OffsetFetch v8 names several
groups.

TxnOffsetCommit (api 28), versions 0-5: offsets that are committed with a transaction. Two
coordinators take part. First the transaction coordinator verifies that the group's offsets belong
to the transaction: from v5 on the request adds them (KIP-890), before that AddOffsetsToTxn did.
Then the group's shard stores the offsets as pending until the marker arrives. A guard prevents
pending offsets after the marker (see `coordinator.txn_verification`).
"""

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.base.errors import ErrorCode, Refused
from penstock.base.fair_scheduler import Steps, picked
from penstock.base.ids import NO_TOPIC_ID
from penstock.base.state_machine import Decision, Token
from penstock.broker.api.call import Call
from penstock.broker.api.context import ApiFamily, GroupContext, TransactionContext
from penstock.broker.api.coordinator_calls import ask_group, caller_of, gathered, may_group, may_txn
from penstock.broker.api.large_replies import answered, holder_of
from penstock.broker.api.response_rows import may
from penstock.broker.api.route_row import Operation
from penstock.coordinator.runtime.internal_topics import OFFSETS
from penstock.coordinator.txn_verification import ANY_EPOCH
from penstock.state.groups.error_replies import refusal
from penstock.state.groups.queries import fetch_group
from penstock.state.groups.shard import GroupShard
from penstock.state.transactions.records import ProducerEpoch
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from penstock.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    import asyncio


TopicT = TypeVar("TopicT", OffsetDeleteRequestTopic, TxnOffsetCommitRequestTopic)
RowT = TypeVar("RowT")

TOPIC_IDS_SINCE = 10
ADDS_SINCE = 5
"""TxnOffsetCommit adds the group's offsets to the transaction."""
ABORTABLE_SINCE = 4
"""TxnOffsetCommit answers with TRANSACTION_ABORTABLE."""
GROUPS_SINCE = 8
GROUPS_MAX = 10_000
NO_OFFSET = -1
ASK_STEPS = 4
"""A call of a shard takes as long as so many rows of a response."""


# -- OffsetCommit -----------------------------------------------------------------------------


def offset_commit(ctx: GroupContext, call: Call, request: OffsetCommitRequest) -> Any:
    if not may_group(ctx, call, Operation.READ, request.group_id):
        refused = Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return refusal("OffsetCommit", request, refused, call.version)
    refused_rows: list[OffsetCommitResponseTopic] = []
    kept = [t for topic in request.topics if (t := _committable(ctx, call, topic, refused_rows))]
    if not refused_rows:
        return ask_group(ctx, call, "OffsetCommit", request)
    if not kept:
        return OffsetCommitResponse(topics=refused_rows)
    request.topics = kept
    return ask_group(
        ctx, call, "OffsetCommit", request, lambda response: joined(response, refused_rows)
    )


def _committable(
    ctx: GroupContext,
    call: Call,
    topic: OffsetCommitRequestTopic,
    refused_rows: list[OffsetCommitResponseTopic],
) -> OffsetCommitRequestTopic | None:
    """Returns the valid part of a topic with its name; the rest becomes refused rows."""
    code = ErrorCode.NONE
    image = ctx.image
    if call.version >= TOPIC_IDS_SINCE:
        by_id = image.topics_by_id.get(topic.topic_id)
        if by_id is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic.name = by_id.name
    if not code and not may(ctx, call, Operation.READ, topic.name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    known = image.topics.get(topic.name)
    count = len(known.partitions) if known is not None else 0
    good: Sequence[OffsetCommitRequestPartition] = ()
    if not code:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        good = [row for row in topic.partitions if 0 <= row.partition_index < count]
    if len(good) < len(topic.partitions) or not topic.partitions:
        taken = {row.partition_index for row in good}
        refused_rows.append(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=row.partition_index, error_code=code
                    )
                    for row in topic.partitions
                    if row.partition_index not in taken
                ],
            )
        )
        topic.partitions = good
    return topic if good else None


def joined(response: Any, refused_rows: Sequence[Any]) -> Any:
    """Joins the shard's response and the rows that were refused before."""
    topics = list(response.topics)
    for refused in refused_rows:
        for topic in topics:
            if _key(topic) == _key(refused):
                topic.partitions = [*topic.partitions, *refused.partitions]
                break
        else:
            topics.append(refused)
    response.topics = topics
    return response


def _key(topic: Any) -> tuple[str, bytes | None]:
    return topic.name, getattr(topic, "topic_id", None)


# -- OffsetFetch ------------------------------------------------------------------------------


async def offset_fetch(
    ctx: GroupContext, call: Call, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    if call.version >= GROUPS_SINCE:
        asked = [_GroupFetch(ctx, call, group) for group in request.groups[:GROUPS_MAX]]
        rows = await _fetched(ctx, call, asked, request.require_stable)
        count = sum(len(topic.partitions) + 1 for row in rows for topic in row.topics)
        return await answered(ctx, call, OffsetFetchResponse(groups=rows), len(rows) + count)
    topics = request.topics
    only = OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in topics
        ],
    )
    (row,) = await _fetched(ctx, call, [_GroupFetch(ctx, call, only)], request.require_stable)
    response = await ctx.scheduler.do(holder_of(call), _flat(request, row, call.version))
    count = sum(len(topic.partitions) + 1 for topic in response.topics)
    return await answered(ctx, call, response, count)


async def _fetched(
    ctx: GroupContext, call: Call, asked: Sequence["_GroupFetch"], is_stable_required: bool
) -> list[OffsetFetchResponseGroup]:
    futures = await ctx.scheduler.do(holder_of(call), _asked(asked, is_stable_required))
    return await ctx.scheduler.do(holder_of(call), _answers(asked, await gathered(futures)))


def _asked(
    asked: Sequence["_GroupFetch"], is_stable_required: bool
) -> Steps[list["asyncio.Future[Any] | Refused"]]:
    futures = []
    for group in asked:
        futures.append((yield from group.ask(is_stable_required)))
        yield from repeat(None, ASK_STEPS)
    return futures


def _answers(
    asked: Sequence["_GroupFetch"], replies: Sequence[Any]
) -> Steps[list[OffsetFetchResponseGroup]]:
    rows = []
    for group, reply in zip(asked, replies, strict=True):
        rows.append((yield from group.answer(reply)))
        yield
    return rows


def _flat(
    request: OffsetFetchRequest, row: OffsetFetchResponseGroup, version: int
) -> Steps[OffsetFetchResponse]:
    """Converts one group's response to the format before v8."""
    if row.error_code:
        code = ErrorCode(row.error_code)
        return _whole(refusal("OffsetFetch", request, Refused(code), version))
    topics = []
    for topic in row.topics:
        partitions = []
        for found in topic.partitions:
            yield
            partitions.append(
                OffsetFetchResponsePartition(
                    partition_index=found.partition_index,
                    committed_offset=found.committed_offset,
                    committed_leader_epoch=found.committed_leader_epoch,
                    metadata=found.metadata,
                    error_code=found.error_code,
                )
            )
        topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    return OffsetFetchResponse(topics=topics)


def _whole(response: Any) -> OffsetFetchResponse:
    assert isinstance(response, OffsetFetchResponse)
    return response


class _GroupFetch:
    """Request for one group: the part for its shard, and rows that are refused before."""

    def __init__(self, ctx: GroupContext, call: Call, group: OffsetFetchRequestGroup) -> None:
        self._ctx = ctx
        self._call = call
        self._group = group
        self._refused: list[OffsetFetchResponseTopics] = []

    def ask(self, is_stable_required: bool) -> Steps["asyncio.Future[Any] | Refused"]:
        ctx, call, group = self._ctx, self._call, self._group
        if not may_group(ctx, call, Operation.DESCRIBE, group.group_id):
            return Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if group.topics is not None:
            group.topics = yield from picked(group.topics, self._seen)

        def decide(shard: GroupShard, token: Token, now_ms: int) -> Decision:
            return Decision(replies=((token, fetch_group(shard, group, is_stable_required)),))

        try:
            return ctx.groups.host.ask(group.group_id, decide)
        except Refused as refused:
            return refused

    def _seen(self, topic: OffsetFetchRequestTopics) -> OffsetFetchRequestTopics | None:
        """Returns the topic with its name; a topic that is refused becomes a refused row."""
        code = ErrorCode.NONE
        if self._call.version >= TOPIC_IDS_SINCE:
            known = self._ctx.image.topics_by_id.get(topic.topic_id)
            if known is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                topic.name = known.name
        if not code and not may(self._ctx, self._call, Operation.DESCRIBE, topic.name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if not code:
            return topic
        self._refused.append(
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=NO_OFFSET,
                        metadata="",
                        error_code=code,
                    )
                    for index in topic.partition_indexes
                ],
            )
        )
        return None

    def answer(
        self, reply: Refused | Steps[OffsetFetchResponseGroup]
    ) -> Steps[OffsetFetchResponseGroup]:
        group = self._group
        if isinstance(reply, Refused):
            return OffsetFetchResponseGroup(
                group_id=group.group_id, topics=(), error_code=reply.code
            )
        row = yield from reply
        if group.topics is None:
            row.topics = yield from picked(row.topics, self._shown)
        row.topics = [*row.topics, *self._refused]
        return row

    def _shown(self, topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopics | None:
        """Returns the topic if the caller may see it and, with topic ids, if it still exists."""
        if self._call.version >= TOPIC_IDS_SINCE and topic.topic_id == NO_TOPIC_ID:
            return None
        return topic if may(self._ctx, self._call, Operation.DESCRIBE, topic.name) else None


# -- OffsetDelete -----------------------------------------------------------------------------


def offset_delete(ctx: GroupContext, call: Call, request: OffsetDeleteRequest) -> Any:
    if not may_group(ctx, call, Operation.DELETE, request.group_id):
        refused = Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return refusal("OffsetDelete", request, refused, call.version)
    kept, refused_rows = _permitted(
        ctx, call, request.topics, OffsetDeleteResponseTopic, OffsetDeleteResponsePartition
    )
    if refused_rows and not kept:
        return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=refused_rows)
    request.topics = kept

    def whole(response: Any) -> Any:
        return response if response.error_code else joined(response, refused_rows)

    return ask_group(ctx, call, "OffsetDelete", request, whole)


async def txn_offset_commit(
    ctx: TransactionContext, call: Call, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    refused_rows: list[TxnOffsetCommitResponseTopic] = []
    try:
        if not may_txn(ctx, call, Operation.WRITE, request.transactional_id):
            raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not may_group(ctx, call, Operation.READ, request.group_id):
            raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        kept, refused_rows = _permitted(
            ctx,
            call,
            request.topics,
            TxnOffsetCommitResponseTopic,
            TxnOffsetCommitResponsePartition,
        )
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


def _permitted(
    ctx: ApiFamily,
    call: Call,
    topics: Sequence[TopicT],
    topic_row: Callable[..., RowT],
    partition_row: Callable[..., Any],
) -> tuple[list[TopicT], list[RowT]]:
    """Returns the parts of topics that exist and are permitted, and refused rows for the rest."""
    kept: list[TopicT] = []
    refused: list[RowT] = []
    for topic in topics:
        known = ctx.image.topics.get(topic.name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        count = len(known.partitions) if known is not None else 0
        if not may(ctx, call, Operation.READ, topic.name):
            code, count = ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0
        bad = [row for row in topic.partitions if not 0 <= row.partition_index < count]
        if bad:
            rows = [
                partition_row(partition_index=row.partition_index, error_code=code) for row in bad
            ]
            refused.append(topic_row(name=topic.name, partitions=rows))
            topic.partitions = [row for row in topic.partitions if 0 <= row.partition_index < count]
        if topic.partitions:
            kept.append(topic)
    return kept, refused
