"""CreateTopics (api 19), versions 2-7; DeleteTopics (20), 1-6; CreatePartitions (37), 0-3.

Each topic is a separate change with its own row: a refused topic does not affect others. The reply
is sent when this node serves the created topics, or REQUEST_TIMED_OUT after `timeout_ms` (the
change is not undone). CreateTopics v4 accepts -1 for defaults, v5 flexible and returns configs, v7
returns the topic id. DeleteTopics v4 flexible, v5 error messages, v6 by name or id.
CreatePartitions v2 flexible. One request creates at most 2,000 partitions.

A client above its mutation quota (KIP-599) is refused with THROTTLING_QUOTA_EXCEEDED from
CreateTopics v6, DeleteTopics v5 and CreatePartitions v3 on, and throttled in older versions.
"""

from collections.abc import Sequence

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import NO_TOPIC_ID, TopicId
from penstock.broker.api.admin.configs import check_dead_letter_topics
from penstock.broker.api.call import Call
from penstock.broker.api.context import AdminContext
from penstock.broker.api.quota import take_partitions
from penstock.broker.api.response_rows import ROWS_MAX, duplicates, may, may_cluster, settled
from penstock.broker.api.route_row import Operation
from penstock.cluster.configs.effective_configs import TABLES, Scope, describe_topic
from penstock.cluster.metadata import topics
from penstock.cluster.metadata.topics import NewTopic, TopicPlan
from penstock.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

DELETION_DISABLED_SINCE = 3
CREATION_STRICT_SINCE = 6
DELETION_STRICT_SINCE = 5
GROWTH_STRICT_SINCE = 3
TIMED_OUT = "the change is stored, but this broker has not applied it yet"


# -- CreateTopics -----------------------------------------------------------------------------


async def create_topics(
    ctx: AdminContext, call: Call, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    twice = duplicates(topic.name for topic in request.topics)
    may_create_all = may_cluster(ctx, call, Operation.CREATE)
    remaining = topics.PARTITIONS_PER_REQUEST_MAX
    rows: dict[str, CreatableTopicResult] = {}
    created: dict[str, TopicPlan] = {}
    revision = 0
    for topic in request.topics[:ROWS_MAX]:
        name = topic.name
        try:
            if name in twice:
                raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if not (may_create_all or may(ctx, call, Operation.CREATE, name)):
                raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
            topics.check_collision(name, created)
            wanted = _new_topic(topic)
            check_dead_letter_topics(ctx, call, wanted.configs)
            plan = topics.plan_topic(wanted, ctx.image, ctx.configs, ctx.random)
            remaining -= len(plan.record.partitions)
            topics.check_count(topics.PARTITIONS_PER_REQUEST_MAX - remaining)
            if not request.validate_only:
                _charge(call, len(plan.record.partitions), CREATION_STRICT_SINCE)
                revision = max(revision, await topics.create_topic(ctx.store, plan))
            created[name] = plan
            rows[name] = _created(ctx, call, plan)
        except Refused as refused:
            rows[name] = _not_created(name, refused.code, refused.message)
    if revision and not await settled(ctx, revision, request.timeout_ms):
        for name in created:
            rows[name] = _not_created(name, ErrorCode.REQUEST_TIMED_OUT, TIMED_OUT)
    beyond = [topic.name for topic in request.topics[ROWS_MAX:]]
    for name in beyond:
        rows.setdefault(name, _not_created(name, *_too_many()))
    return CreateTopicsResponse(topics=list(rows.values()))


def _charge(call: Call, partitions: int, strict_since: int) -> None:
    take_partitions(call, partitions, is_strict=call.version >= strict_since)


def _too_many() -> tuple[ErrorCode, str]:
    return ErrorCode.POLICY_VIOLATION, f"One request may name {ROWS_MAX} topics."


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(row.partition_index, row.broker_ids) for row in topic.assignments],
        {config.name: config.value for config in topic.configs},
    )


def _created(ctx: AdminContext, call: Call, plan: TopicPlan) -> CreatableTopicResult:
    row = CreatableTopicResult(
        name=plan.name, topic_id=plan.id, error_code=ErrorCode.NONE, error_message=None
    )
    if not may(ctx, call, Operation.DESCRIBE_CONFIGS, plan.name):
        row.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return row
    row.num_partitions = len(plan.record.partitions)
    row.replication_factor = plan.replication_factor
    row.configs = _effective_configs(ctx, plan)
    return row


def _effective_configs(ctx: AdminContext, plan: TopicPlan) -> list[CreatableTopicConfigs]:
    rows = []
    for name, config in TABLES[Scope.TOPIC].items():
        if config.is_internal:
            continue
        described = describe_topic(name, plan.record.configs, ctx.configs)
        rows.append(
            CreatableTopicConfigs(
                name=name,
                value=None if config.is_sensitive else described.text,
                read_only=False,
                config_source=described.source,
                is_sensitive=config.is_sensitive,
            )
        )
    return rows


def _not_created(name: str, code: ErrorCode, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)


# -- DeleteTopics -----------------------------------------------------------------------------


async def delete_topics(
    ctx: AdminContext, call: Call, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    wanted: list[tuple[str | None, TopicId]] = [(name, NO_TOPIC_ID) for name in request.topic_names]
    wanted += [(topic.name, topic.topic_id) for topic in request.topics]
    twice = duplicates(wanted)
    rows: list[DeletableTopicResult] = []
    deleted: list[DeletableTopicResult] = []
    gone: set[TopicId] = set()
    revision = 0
    for name, topic_id in dict.fromkeys(wanted[:ROWS_MAX]):
        row = DeletableTopicResult(name=name, topic_id=topic_id, error_code=ErrorCode.NONE)
        rows.append(row)
        try:
            _check_deletable(ctx, call, name, topic_id, twice)
            target, target_id = _target(ctx, call, row, name, topic_id)
            if target_id in gone:
                raise Refused(
                    ErrorCode.INVALID_REQUEST,
                    "The provided topic name maps to an ID that was already supplied.",
                )
            gone.add(target_id)
            row.topic_id = target_id
            only_id = target_id if name is None else None
            known = ctx.image.topics.get(target)
            _charge(call, len(known.partitions) if known else 1, DELETION_STRICT_SINCE)
            revision = max(revision, await topics.delete_topic(ctx.store, target, only_id))
            deleted.append(row)
        except Refused as refused:
            row.error_code = refused.code
            row.error_message = refused.message
    if revision and not await settled(ctx, revision, request.timeout_ms):
        for row in deleted:
            row.error_code = ErrorCode.REQUEST_TIMED_OUT
            row.error_message = TIMED_OUT
    for name, topic_id in dict.fromkeys(wanted[ROWS_MAX:]):
        code, message = _too_many()
        rows.append(
            DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=code, error_message=message
            )
        )
    return DeleteTopicsResponse(responses=rows)


def _check_deletable(
    ctx: AdminContext,
    call: Call,
    name: str | None,
    topic_id: TopicId,
    twice: set[tuple[str | None, TopicId]],
) -> None:
    if not ctx.configs.flag("delete.topic.enable"):
        if call.version < DELETION_DISABLED_SINCE:
            raise Refused(ErrorCode.INVALID_REQUEST, "Topic deletion is disabled.")
        raise Refused(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    if name is None and topic_id == NO_TOPIC_ID:
        raise Refused(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if name is not None and topic_id != NO_TOPIC_ID:
        raise Refused(
            ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
        )
    if (name, topic_id) in twice:
        what = "id" if name is None else "name"
        raise Refused(ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}.")


def _target(
    ctx: AdminContext, call: Call, row: DeletableTopicResult, name: str | None, topic_id: TopicId
) -> tuple[str, TopicId]:
    """Returns name and id of the topic; hides its existence from callers without permission."""
    if name is None:
        topic = ctx.image.topics_by_id.get(topic_id)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
        if may(ctx, call, Operation.DESCRIBE, topic.name):
            row.name = topic.name
    else:
        if not may(ctx, call, Operation.DESCRIBE, name):
            raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        topic = ctx.image.topics.get(name)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not may(ctx, call, Operation.DELETE, topic.name):
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return topic.name, topic.id


# -- CreatePartitions -------------------------------------------------------------------------


async def create_partitions(
    ctx: AdminContext, call: Call, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    twice = duplicates(topic.name for topic in request.topics)
    rows: dict[str, CreatePartitionsTopicResult] = {}
    grown: list[str] = []
    remaining = topics.PARTITIONS_PER_REQUEST_MAX
    revision = 0
    for topic in request.topics:
        name = topic.name
        row = CreatePartitionsTopicResult(name=name, error_code=ErrorCode.NONE)
        rows[name] = row
        try:
            if name in twice:
                raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if not may(ctx, call, Operation.ALTER, name):
                raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            known = ctx.image.topics.get(name)
            added = max(0, topic.count - len(known.partitions)) if known is not None else 0
            remaining -= added
            topics.check_count(topics.PARTITIONS_PER_REQUEST_MAX - remaining)
            if added and not request.validate_only:
                _charge(call, added, GROWTH_STRICT_SINCE)
            changed = await topics.create_partitions(
                ctx.store,
                ctx.image,
                ctx.random,
                name,
                topic.count,
                _assignments(topic),
                validate_only=request.validate_only,
            )
            revision = max(revision, changed)
            grown.append(name)
        except Refused as refused:
            row.error_code = refused.code
            row.error_message = refused.message
    is_settled = request.validate_only or await settled(ctx, revision, request.timeout_ms)
    for name in () if is_settled else grown:
        rows[name].error_code = ErrorCode.REQUEST_TIMED_OUT
        rows[name].error_message = TIMED_OUT
    return CreatePartitionsResponse(results=list(rows.values()))


def _assignments(topic: CreatePartitionsTopic) -> Sequence[Sequence[int]] | None:
    if topic.assignments is None:
        return None
    return [assignment.broker_ids for assignment in topic.assignments]
