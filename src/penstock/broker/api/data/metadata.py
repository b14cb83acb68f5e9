"""Metadata (api 3), versions 0-13; DescribeTopicPartitions (75), version 0.

Metadata: in v0 an empty list means all topics; from v1 on a null list does, and an empty list means
none. v4 lets the client forbid auto-creation, v8 authorized operations (the cluster's until v10),
v9 flexible, v10 topic ids in the reply, v12 requests by topic id. If `auto.create.topics.enable` is
set, a missing topic is created before the reply, so that the first reply is already useful. Topics
that the caller may not describe look as in Kafka. A leader that was lost a moment ago is not named:
the reply waits for its successor (`recent_failures`). A node that was partitioned from the cluster,
and may know only old leaders, closes the connections of its clients, so that they ask other nodes.
Large responses are built in steps, and the one for all topics is cached until the image changes.

DescribeTopicPartitions pages by (topic, partition), in the order of names, at most
`max.request.partition.size.limit` partitions a page (KIP-966).
"""

import functools
from collections.abc import Awaitable, Collection, Iterable, Sequence
from typing import TypeAlias

from penstock.base.errors import ErrorCode, Refused
from penstock.base.fair_scheduler import PIECE_STEPS, Steps, do_piece
from penstock.base.ids import NO_TOPIC_ID, TopicId
from penstock.base.ports import Buffer
from penstock.broker.api.call import Call
from penstock.broker.api.context import MetadataContext
from penstock.broker.api.large_replies import give_written, holder_of, in_steps, written
from penstock.broker.api.response_rows import (
    cluster_operations,
    endpoints,
    may,
    may_cluster,
    settled,
    topic_operations,
)
from penstock.broker.api.route_row import Operation
from penstock.cluster.metadata import topics
from penstock.cluster.metadata.image import INTERNAL_TOPICS, Image, TopicImage
from penstock.cluster.metadata.store_keys import NO_LEADER, PartitionRecord
from penstock.cluster.metadata.topics import NewTopic
from penstock.wire.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC_IDS_SINCE = 12
NOT_ASKED = -(2**31)
AUTO_CREATE_WAIT_MS = 5_000

Found: TypeAlias = TopicImage | MetadataResponseTopic
"""Topic to describe, or its error row."""


def metadata(
    ctx: MetadataContext, call: Call, request: MetadataRequest
) -> Awaitable[MetadataResponse] | None:
    if ctx.membership.may_be_stale:
        call.hang_up()
        return None
    return _answer(ctx, call, request)


async def _answer(ctx: MetadataContext, call: Call, request: MetadataRequest) -> MetadataResponse:
    await ctx.failures.wait_for_detection()
    await ctx.failures.wait_until_decided(functools.partial(_names_any, request, call.version))
    found = _look(ctx, call, request)
    return found if isinstance(found, MetadataResponse) else await found


def _names_any(
    request: MetadataRequest, version: int, image: Image, nodes: Collection[int]
) -> bool:
    """True if the response would name one of these nodes as a leader."""
    wanted: Iterable[TopicImage | None] = image.topics.values()
    if request.topics or (request.topics is not None and version > 0):
        wanted = [
            image.topics.get(topic.name or "") or image.topics_by_id.get(topic.topic_id)
            for topic in request.topics
        ]
    return any(
        record.leader in nodes
        for topic in wanted
        if topic is not None
        for record in topic.partitions
    )


def _look(
    ctx: MetadataContext, call: Call, request: MetadataRequest
) -> MetadataResponse | Awaitable[MetadataResponse]:
    wanted, image = request.topics, ctx.image
    if wanted is None or (call.version == 0 and not wanted):
        return _all(ctx, call, request)
    if (
        any(topic.name is None or topic.topic_id != NO_TOPIC_ID for topic in wanted)
        and call.version < TOPIC_IDS_SINCE
    ):
        rows = [_error(ErrorCode.INVALID_REQUEST, topic.name or "") for topic in wanted]
        return _respond(ctx, call, request, image, rows)
    ids = dict.fromkeys(topic.topic_id for topic in wanted if topic.topic_id != NO_TOPIC_ID)
    if ids:
        return _answer_for(ctx, call, request, image, [_by_id(ctx, call, key) for key in ids])
    names = list(dict.fromkeys(topic.name or "" for topic in wanted))
    missing = _creatable(ctx, call, request, names)
    if missing:
        return _respond_after_creating(ctx, call, request, names, missing)
    return _answer_for(ctx, call, request, image, [_by_name(ctx, call, name) for name in names])


def _answer_for(
    ctx: MetadataContext, call: Call, request: MetadataRequest, image: Image, found: Sequence[Found]
) -> MetadataResponse | Awaitable[MetadataResponse]:
    if len(found) == 1:
        [one] = found
        if not isinstance(one, TopicImage):
            return _respond(ctx, call, request, image, [one])
        if len(one.partitions) <= PIECE_STEPS:
            rows = [_partition(image, at, record) for at, record in enumerate(one.partitions)]
            row = _row(ctx, call, request, one, rows)
            return _respond(ctx, call, request, image, [row])
    return in_steps(ctx, call, _rows(ctx, call, request, image, found))


def _rows(
    ctx: MetadataContext,
    call: Call,
    request: MetadataRequest,
    image: Image,
    found: Iterable[Found | None],
) -> Steps[MetadataResponse]:
    shown = []
    for one in found:
        yield
        if one is None:
            continue
        if not isinstance(one, TopicImage):
            shown.append(one)
            continue
        rows = []
        for at, record in enumerate(one.partitions):
            rows.append(_partition(image, at, record))
            yield
        shown.append(_row(ctx, call, request, one, rows))
    return _respond(ctx, call, request, image, shown)


async def _all(ctx: MetadataContext, call: Call, request: MetadataRequest) -> MetadataResponse:
    steps = _visible(ctx, call, request)
    small = do_piece(steps)
    if small is not None:
        return small[0]
    if call.prepared.write_steps is None:
        return await ctx.scheduler.run(holder_of(call), steps)
    caller = call.caller
    key = (
        call.version,
        request.include_topic_authorized_operations,
        request.include_cluster_authorized_operations,
        (call.principal, caller.peer) if ctx.authorizer.is_on else None,
        caller.listener,
        caller.local_host,
    )

    async def make() -> list[Buffer]:
        return await ctx.scheduler.run(holder_of(call), _visible_written(ctx, call, request))

    give_written(call, await ctx.listings.get(lambda: ctx.image, key, make))
    return MetadataResponse(brokers=(), topics=())


def _visible(ctx: MetadataContext, call: Call, request: MetadataRequest) -> Steps[MetadataResponse]:
    image = ctx.image
    found = (
        topic if may(ctx, call, Operation.DESCRIBE, name) else None
        for name, topic in image.topics.items()
    )
    return _rows(ctx, call, request, image, found)


def _visible_written(
    ctx: MetadataContext, call: Call, request: MetadataRequest
) -> Steps[list[Buffer]]:
    response = yield from _visible(ctx, call, request)
    return (yield from written(call, response))


def _respond(
    ctx: MetadataContext,
    call: Call,
    request: MetadataRequest,
    image: Image,
    rows: Sequence[MetadataResponseTopic],
) -> MetadataResponse:
    operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        is_allowed = may_cluster(ctx, call, Operation.DESCRIBE)
        operations = cluster_operations(ctx, call) if is_allowed else 0
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.node_id, host=host, port=port, rack=broker.rack)
            for broker, (host, port) in endpoints(image, call)
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=rows,
        cluster_authorized_operations=operations,
    )


def _by_name(ctx: MetadataContext, call: Call, name: str) -> Found:
    if not may(ctx, call, Operation.DESCRIBE, name):
        return _error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
    topic = ctx.image.topics.get(name)
    if topic is not None:
        return topic
    row = _error(missing_code(name), name)
    row.is_internal = name in INTERNAL_TOPICS
    return row


def _by_id(ctx: MetadataContext, call: Call, topic_id: TopicId) -> Found:
    topic = ctx.image.topics_by_id.get(topic_id)
    if topic is None:
        return _error(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    if not may(ctx, call, Operation.DESCRIBE, topic.name):
        return _error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id)
    return topic


def _row(
    ctx: MetadataContext,
    call: Call,
    request: MetadataRequest,
    topic: TopicImage,
    partitions: Sequence[MetadataResponsePartition],
) -> MetadataResponseTopic:
    asked = request.include_topic_authorized_operations
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=topic_operations(ctx, call, topic.name) if asked else NOT_ASKED,
    )


def _partition(image: Image, index: int, record: PartitionRecord) -> MetadataResponsePartition:
    leader = live_leader(image, record)
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=leader,
        leader_epoch=record.leader_epoch,
        replica_nodes=record.replicas,
        isr_nodes=record.isr,
        offline_replicas=offline_replicas(image, record),
    )


def live_leader(image: Image, record: PartitionRecord) -> int:
    return record.leader if record.leader in image.brokers else NO_LEADER


def offline_replicas(image: Image, record: PartitionRecord) -> list[int]:
    return [node for node in record.replicas if node not in image.brokers]


def _error(
    code: ErrorCode, name: str | None, topic_id: TopicId = NO_TOPIC_ID
) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, partitions=())


def missing_code(name: str) -> ErrorCode:
    """Returns the error code for a name without topic."""
    try:
        topics.check_name(name)
    except Refused as refused:
        return refused.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- auto-creation ----------------------------------------------------------------------------


def _creatable(
    ctx: MetadataContext, call: Call, request: MetadataRequest, names: Iterable[str]
) -> list[str]:
    """Returns the topics that this request may create."""
    if not (request.allow_auto_topic_creation and ctx.configs.flag("auto.create.topics.enable")):
        return []
    image = ctx.image
    return [
        name
        for name in names
        if name not in image.topics
        and missing_code(name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        and may(ctx, call, Operation.DESCRIBE, name)
    ]


async def _respond_after_creating(
    ctx: MetadataContext,
    call: Call,
    request: MetadataRequest,
    names: Sequence[str],
    missing: list[str],
) -> MetadataResponse:
    refused: dict[str, ErrorCode] = {}
    may_create_all = may_cluster(ctx, call, Operation.CREATE)
    remaining = topics.PARTITIONS_PER_REQUEST_MAX
    revision = 0
    for name in missing:
        if not (may_create_all or may(ctx, call, Operation.CREATE, name)):
            refused[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            continue
        try:
            plan = topics.plan_topic(NewTopic(name), ctx.image, ctx.configs, ctx.random)
            remaining -= len(plan.record.partitions)
            if remaining < 0:
                break  # The rest is answered as unknown: clients retry.
            revision = max(revision, await topics.create_topic(ctx.store, plan))
        except Refused as reason:
            if reason.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                refused[name] = reason.code
    await settled(ctx, revision, AUTO_CREATE_WAIT_MS)
    found: list[Found] = [
        _error(refused[name], name) if name in refused else _by_name(ctx, call, name)
        for name in names
    ]
    answer = _answer_for(ctx, call, request, ctx.image, found)
    return answer if isinstance(answer, MetadataResponse) else await answer


# -- DescribeTopicPartitions ------------------------------------------------------------------


def describe_topic_partitions(
    ctx: MetadataContext, call: Call, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse | Awaitable[DescribeTopicPartitionsResponse]:
    image, cursor = ctx.image, request.cursor
    asked = {topic.name for topic in request.topics}
    start = cursor.topic_name if cursor is not None else ""
    if cursor is not None and (
        cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)
    ):
        rows = [_described_error(ErrorCode.INVALID_REQUEST, name) for name in sorted(asked)]
        return DescribeTopicPartitionsResponse(topics=rows)
    names = sorted(name for name in (asked or image.topics) if name >= start)
    return in_steps(ctx, call, _pages(ctx, call, request, image, names))


def _pages(
    ctx: MetadataContext,
    call: Call,
    request: DescribeTopicPartitionsRequest,
    image: Image,
    names: Sequence[str],
) -> Steps[DescribeTopicPartitionsResponse]:
    cursor, is_asked = request.cursor, bool(request.topics)
    start = cursor.topic_name if cursor is not None else ""
    remaining = ctx.configs.integer("max.request.partition.size.limit")
    remaining = max(1, min(remaining, request.response_partition_limit))
    rows = []
    for name in names:
        yield
        if not may(ctx, call, Operation.DESCRIBE, name):
            if is_asked:
                rows.append(_described_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
            continue
        topic = image.topics.get(name)
        if remaining == 0:
            return _page(rows, name, 0)
        if topic is None:
            rows.append(_described_error(missing_code(name), name))
            continue
        first = cursor.partition_index if cursor is not None and name == start else 0
        end = min(len(topic.partitions), first + remaining)
        rows.append((yield from _described(ctx, call, image, topic, range(first, end))))
        remaining -= max(0, end - first)
        if end < len(topic.partitions):
            return _page(rows, name, end)
    return DescribeTopicPartitionsResponse(topics=rows)


def _page(
    rows: Sequence[DescribeTopicPartitionsResponseTopic], name: str, index: int
) -> DescribeTopicPartitionsResponse:
    cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=index)
    return DescribeTopicPartitionsResponse(topics=rows, next_cursor=cursor)


def _described_error(code: ErrorCode, name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_id=NO_TOPIC_ID, partitions=()
    )


def _described(
    ctx: MetadataContext, call: Call, image: Image, topic: TopicImage, indexes: range
) -> Steps[DescribeTopicPartitionsResponseTopic]:
    rows = []
    for index in indexes:
        record = topic.partitions[index]
        leader = live_leader(image, record)
        rows.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.NONE if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=leader,
                leader_epoch=record.leader_epoch,
                replica_nodes=record.replicas,
                isr_nodes=record.isr,
                eligible_leader_replicas=record.elr,
                last_known_elr=record.last_known_elr,
                offline_replicas=offline_replicas(image, record),
            )
        )
        yield
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=rows,
        topic_authorized_operations=topic_operations(ctx, call, topic.name),
    )
