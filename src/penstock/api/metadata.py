"""Metadata (api 3), versions 0-13; DescribeTopicPartitions (75), version 0.

Metadata: v0 takes an empty list for all topics, v1+ a null one, and an empty list means none.
v4 lets the client forbid auto-creation, v8 authorized operations (the cluster's until v10), v9
flexible, v10 topic ids in the reply, v12 asks by topic id. A missing topic is created, as
`auto.create.topics.enable` says, before the reply leaves, so the first reply is already useful.
Topics the caller may not describe look as Kafka lets them look. A leader that was lost a moment
ago is not named: the reply waits for its successor (`losses`). A node that was cut off, and may
know of old leaders only, sends its clients away: the end of the connection makes them ask others.

DescribeTopicPartitions pages by (topic, partition), in the order of names, at most
`max.request.partition.size.limit` partitions a page (KIP-966).
"""

import functools
from collections.abc import Awaitable, Collection, Iterable, Sequence

from penstock.api.context import Call, Context
from penstock.api.route import Operation
from penstock.api.rows import (
    cluster_operations,
    endpoints,
    may,
    may_cluster,
    settled,
    topic_operations,
)
from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import NO_TOPIC_ID, TopicId
from penstock.cluster import topics
from penstock.cluster.image import INTERNAL_TOPICS, Image, Topic
from penstock.cluster.keys import NO_LEADER, PartitionRecord
from penstock.cluster.topics import NewTopic
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


def metadata(
    ctx: Context, call: Call, request: MetadataRequest
) -> Awaitable[MetadataResponse] | None:
    if ctx.membership.is_misleading:
        call.hang_up()
        return None
    return _answer(ctx, call, request)


async def _answer(ctx: Context, call: Call, request: MetadataRequest) -> MetadataResponse:
    await ctx.losses.look()
    await ctx.losses.outlast(functools.partial(_names_any, request, call.version))
    found = _look(ctx, call, request)
    return found if isinstance(found, MetadataResponse) else await found


def _names_any(
    request: MetadataRequest, version: int, image: Image, nodes: Collection[int]
) -> bool:
    """Whether the answer would say that one of these nodes leads."""
    wanted: Iterable[Topic | None] = image.topics.values()
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
    ctx: Context, call: Call, request: MetadataRequest
) -> MetadataResponse | Awaitable[MetadataResponse]:
    wanted = request.topics
    if wanted is None or (call.version == 0 and not wanted):
        names = [name for name in ctx.image.topics if may(ctx, call, Operation.DESCRIBE, name)]
        return _respond(ctx, call, request, [_known(ctx, call, request, name) for name in names])
    if (
        any(topic.name is None or topic.topic_id != NO_TOPIC_ID for topic in wanted)
        and call.version < TOPIC_IDS_SINCE
    ):
        rows = [_error(ErrorCode.INVALID_REQUEST, topic.name or "") for topic in wanted]
        return _respond(ctx, call, request, rows)
    ids = dict.fromkeys(topic.topic_id for topic in wanted if topic.topic_id != NO_TOPIC_ID)
    if ids:
        return _respond(ctx, call, request, [_by_id(ctx, call, request, key) for key in ids])
    names = list(dict.fromkeys(topic.name or "" for topic in wanted))
    missing = _creatable(ctx, call, request, names)
    if missing:
        return _respond_after_creating(ctx, call, request, names, missing)
    return _respond(ctx, call, request, [_by_name(ctx, call, request, name) for name in names])


def _respond(
    ctx: Context, call: Call, request: MetadataRequest, rows: Sequence[MetadataResponseTopic]
) -> MetadataResponse:
    image = ctx.image
    operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        is_allowed = may_cluster(ctx, call, Operation.DESCRIBE)
        operations = cluster_operations(ctx, call) if is_allowed else 0
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.node_id, host=host, port=port, rack=broker.rack)
            for broker, (host, port) in endpoints(ctx, call)
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=rows,
        cluster_authorized_operations=operations,
    )


def _by_name(
    ctx: Context, call: Call, request: MetadataRequest, name: str
) -> MetadataResponseTopic:
    if not may(ctx, call, Operation.DESCRIBE, name):
        return _error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
    if name in ctx.image.topics:
        return _known(ctx, call, request, name)
    row = _error(missing_code(name), name)
    row.is_internal = name in INTERNAL_TOPICS
    return row


def _by_id(
    ctx: Context, call: Call, request: MetadataRequest, topic_id: TopicId
) -> MetadataResponseTopic:
    topic = ctx.image.topics_by_id.get(topic_id)
    if topic is None:
        return _error(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    if not may(ctx, call, Operation.DESCRIBE, topic.name):
        return _error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id)
    return _known(ctx, call, request, topic.name)


def _known(ctx: Context, call: Call, request: MetadataRequest, name: str) -> MetadataResponseTopic:
    image = ctx.image
    topic = image.topics[name]
    asked = request.include_topic_authorized_operations
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            _partition(image, index, record) for index, record in enumerate(topic.partitions)
        ],
        topic_authorized_operations=topic_operations(ctx, call, name) if asked else NOT_ASKED,
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
    """What a name that no topic has is answered with."""
    try:
        topics.check_name(name)
    except Refused as refused:
        return refused.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- creating what is missing -----------------------------------------------------------------


def _creatable(
    ctx: Context, call: Call, request: MetadataRequest, names: Iterable[str]
) -> list[str]:
    """The names this request may bring into being."""
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
    ctx: Context, call: Call, request: MetadataRequest, names: Sequence[str], missing: list[str]
) -> MetadataResponse:
    refused: dict[str, ErrorCode] = {}
    may_create_all = may_cluster(ctx, call, Operation.CREATE)
    room = topics.PARTITIONS_PER_REQUEST_MAX
    revision = 0
    for name in missing:
        if not (may_create_all or may(ctx, call, Operation.CREATE, name)):
            refused[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            continue
        try:
            plan = topics.plan_topic(NewTopic(name), ctx.image, ctx.configs, ctx.random)
            room -= len(plan.record.partitions)
            if room < 0:
                break  # The rest is answered as unknown: clients ask again.
            revision = max(revision, await topics.create_topic(ctx.store, plan))
        except Refused as reason:
            if reason.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                refused[name] = reason.code
    await settled(ctx, revision, AUTO_CREATE_WAIT_MS)
    rows = [
        _error(refused[name], name) if name in refused else _by_name(ctx, call, request, name)
        for name in names
    ]
    return _respond(ctx, call, request, rows)


# -- DescribeTopicPartitions ------------------------------------------------------------------


def describe_topic_partitions(
    ctx: Context, call: Call, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    image, cursor = ctx.image, request.cursor
    asked = {topic.name for topic in request.topics}
    start = cursor.topic_name if cursor is not None else ""
    if cursor is not None and (
        cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)
    ):
        rows = [_described_error(ErrorCode.INVALID_REQUEST, name) for name in sorted(asked)]
        return DescribeTopicPartitionsResponse(topics=rows)
    names = sorted(name for name in (asked or image.topics) if name >= start)
    room = ctx.configs.integer("max.request.partition.size.limit")
    room = max(1, min(room, request.response_partition_limit))
    rows = []
    for name in names:
        if not may(ctx, call, Operation.DESCRIBE, name):
            if asked:
                rows.append(_described_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
            continue
        topic = image.topics.get(name)
        if room == 0:
            return _page(rows, name, 0)
        if topic is None:
            rows.append(_described_error(missing_code(name), name))
            continue
        first = cursor.partition_index if cursor is not None and name == start else 0
        end = min(len(topic.partitions), first + room)
        rows.append(_described(ctx, call, topic, range(first, end)))
        room -= max(0, end - first)
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
    ctx: Context, call: Call, topic: Topic, indexes: range
) -> DescribeTopicPartitionsResponseTopic:
    image = ctx.image
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
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=rows,
        topic_authorized_operations=topic_operations(ctx, call, topic.name),
    )
