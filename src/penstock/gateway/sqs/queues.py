"""Queue administration: create, find, list, describe, change, tag, purge, delete.

Creating a queue creates a topic. The topic of a FIFO queue has one partition, because deduplication
works per partition. Creating an existing queue with the same attributes is not an error.

Approximate message counts of a queue, from the leaders of its partitions, and purging.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from penstock.base.errors import ErrorCode, Refused
from penstock.base.fair_scheduler import picked
from penstock.base.ids import NO_TOPIC_ID
from penstock.broker.api.route_row import Operation
from penstock.client.errors import code_of
from penstock.gateway.core.cluster_types import TopicImage
from penstock.gateway.sqs import queue_attributes, requests
from penstock.gateway.sqs.call import Answer, AwsCall
from penstock.gateway.sqs.errors import Fault, invalid, missing
from penstock.gateway.sqs.queue_attributes import ORDER, SETTABLE, STORED, TAGS, SqsQueue
from penstock.gateway.sqs.queue_names import check_new_name, is_fifo
from penstock.gateway.sqs.requests import page
from penstock.state.queues.state_shard import QueueKey
from penstock.wire.messages.internal.queue_admin import QueueReport
from penstock.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

NO_STATE = -1
"""Start offset of a queue without state."""


@dataclass(frozen=True, slots=True)
class ApproximateDepth:
    """Approximate message counts of a queue."""

    visible: int
    in_flight: int
    delayed: int


async def depth_of(call: AwsCall, queue: SqsQueue) -> ApproximateDepth:
    if queue.is_fifo:
        # Duplicates are only recognized once the queue has read them.
        await call.gateway.catch_up(queue.topic, queue.group)
    standing = await call.gateway.queues.one(call.principal, queue.name, queue.group)
    in_flight = standing.leased + standing.given_up
    unfinished = sum(_unfinished(report) for report in standing.partitions)
    visible = max(unfinished - in_flight - standing.delayed, 0)
    return ApproximateDepth(visible, in_flight, standing.delayed)


def _unfinished(report: QueueReport) -> int:
    if report.start_offset == NO_STATE:
        # The group has not received yet; it will start with the oldest message.
        return max(report.high_watermark - report.log_start_offset, 0)
    return report.unfinished


async def purge(call: AwsCall, queue: SqsQueue) -> None:
    """Finishes all messages of the queue now; they stay in the log for other groups."""
    standing = await call.gateway.queues.one(call.principal, queue.name, queue.group)
    starts = [
        (QueueKey(queue.group, queue.topic.id, report.partition), report.high_watermark)
        for report in standing.partitions
    ]
    for result in await call.node.queue.queue_admin.move(starts):
        if isinstance(result, Refused):
            raise result


TIMEOUT_MS = 30_000
PARTITIONS_DEFAULT = -1
REPLICAS_DEFAULT = -1
TAGS_MAX = 50
TAG_KEY_CHARS_MAX = 128
TAG_VALUE_CHARS_MAX = 256
DEPTHS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)


# -- creating ---------------------------------------------------------------------------------


async def create_queue(call: AwsCall, request: requests.CreateQueue) -> Answer:
    name, attributes = request.queue_name, queue_attributes.plain(request.attributes)
    check_new_name(name, is_to_be_fifo=attributes.get("FifoQueue") == "true")
    changes = queue_attributes.changes_for(name, attributes)
    _check_redrive(call, name, changes.get(queue_attributes.DEAD_LETTER_TOPIC))
    if name not in call.node.image.topics:
        try:
            await _create_topic(call, request, attributes, changes)
            return {"QueueUrl": call.url(name)}
        except Refused as refused:
            if refused.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
    queue = call.queue_named(name, Operation.DESCRIBE)
    present = queue.describe(call.region)
    for attribute, given in attributes.items():
        if not queue_attributes.is_same(attribute, given, present.get(attribute)):
            raise Fault(
                "QueueNameExists",
                "A queue already exists with the same name and a different value for attribute "
                f"{attribute}",
            )
    return {"QueueUrl": call.url(name)}


async def _create_topic(
    call: AwsCall,
    request: requests.CreateQueue,
    attributes: Mapping[str, str],
    changes: Mapping[str, str | None],
) -> None:
    name = request.queue_name
    configs = {**queue_attributes.CREATION, **changes}
    configs[STORED] = queue_attributes.stored_after({}, attributes, _now_s(call))
    _check_tags(request.tags)
    configs[TAGS] = queue_attributes.write_table(request.tags)
    if is_fifo(name):
        configs[ORDER] = "key"
    topic = CreatableTopic(
        name=name,
        num_partitions=1 if is_fifo(name) else PARTITIONS_DEFAULT,
        replication_factor=REPLICAS_DEFAULT,
        assignments=[],
        configs=[
            CreatableTopicConfig(name=config, value=value)
            for config, value in sorted(configs.items())
            if value
        ],
    )
    response = await call.gateway.handlers.ask(
        call.principal,
        CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=False),
        CreateTopicsResponse,
    )
    for row in response.topics:
        _require(row.error_code, row.error_message)


def _require(error_code: int, message: str | None) -> None:
    code = code_of(error_code)
    if code is not ErrorCode.NONE:
        raise Refused(code, message)


def _now_s(call: AwsCall) -> int:
    return call.node.clock.now_ms() // 1000


def _check_redrive(call: AwsCall, name: str, target: str | None) -> None:
    """Refuses a dead-letter queue that does not exist, that the caller may not write to, or
    that does not allow this source."""
    if target is None:
        return
    topic = call.node.image.topics.get(target)
    if topic is None or topic.is_internal or not call.may_write(target):
        raise Fault(
            "InvalidParameterValue",
            f"Value {target} for parameter RedrivePolicy is invalid. Reason: Dead letter target "
            "does not exist.",
        )
    policy = call.queue_of(topic).redrive_allow_policy
    sources = [arn.rpartition(":")[2] for arn in policy.sourceQueueArns]
    if policy.redrivePermission == "denyAll" or (
        policy.redrivePermission == "byQueue" and name not in sources
    ):
        raise Fault(
            "InvalidParameterValue",
            f"Value {target} for parameter RedrivePolicy is invalid. Reason: Queue does not have "
            "permission to use the specified dead letter queue.",
        )


# -- finding ----------------------------------------------------------------------------------


async def get_queue_url(call: AwsCall, request: requests.GetQueueUrl) -> Answer:
    queue = call.queue_named(request.queue_name, Operation.DESCRIBE)
    return {"QueueUrl": call.url(queue.name)}


async def list_queues(call: AwsCall, request: requests.ListQueues) -> Answer:
    found = await call.gateway.topics.all(call.principal, prefix=request.queue_name_prefix)
    names = [topic.name for topic in found]
    shown, token = page(names, request.max_results, request.next_token)
    answer: Answer = {"QueueUrls": [call.url(name) for name in shown]} if shown else {}
    # Without MaxResults SQS returns the first 1,000, and no token.
    return answer | ({"NextToken": token} if token and request.max_results else {})


async def list_dead_letter_source_queues(
    call: AwsCall, request: requests.ListDeadLetterSourceQueues
) -> Answer:
    target = call.queue(request.queue_url, Operation.DESCRIBE)

    def source(item: tuple[str, TopicImage]) -> str | None:
        name, topic = item
        is_one = call.queue_of(topic).dead_letter_queue == target.name
        return name if is_one and call.may_see(name) else None

    items = sorted(call.node.image.topics.items())
    names = await call.node.metadata.scheduler.do(call.principal.holder, picked(items, source))
    shown, token = page(names, request.max_results, request.next_token)
    answer: Answer = {"queueUrls": [call.url(name) for name in shown]}
    return answer | ({"NextToken": token} if token and request.max_results else {})


# -- attributes and tags ----------------------------------------------------------------------


async def get_queue_attributes(call: AwsCall, request: requests.GetQueueAttributes) -> Answer:
    queue = call.queue(request.queue_url, Operation.DESCRIBE)
    names = request.attribute_names
    unknown = sorted(
        set(names)
        - {"All", "QueueArn", queue_attributes.CREATED, queue_attributes.MODIFIED, *DEPTHS}
    )
    for name in unknown:
        if name not in SETTABLE:
            raise Fault("InvalidAttributeName", f"Unknown Attribute {name}.")
    if not names:
        return {}
    shown = queue.describe(call.region)
    if "All" in names or any(name in DEPTHS for name in names):
        depth = await depth_of(call, queue)
        counts = (depth.visible, depth.in_flight, depth.delayed)
        shown |= {name: str(count) for name, count in zip(DEPTHS, counts, strict=True)}
    if "All" not in names:
        shown = {name: value for name, value in shown.items() if name in names}
    return {"Attributes": shown} if shown else {}


async def set_queue_attributes(call: AwsCall, request: requests.SetQueueAttributes) -> Answer:
    queue = call.queue(request.queue_url, Operation.ALTER_CONFIGS)
    attributes = queue_attributes.plain(request.attributes)
    if not attributes:
        raise missing("Attributes")
    changes = queue_attributes.changes_for(queue.name, attributes)
    _check_redrive(call, queue.name, changes.get(queue_attributes.DEAD_LETTER_TOPIC))

    def edit(present: SqsQueue) -> dict[str, str | None]:
        return changes | {
            STORED: queue_attributes.stored_after(present.stored, attributes, _now_s(call))
        }

    await _alter(call, queue, edit)
    return {}


async def tag_queue(call: AwsCall, request: requests.TagQueue) -> Answer:
    queue = call.queue(request.queue_url, Operation.ALTER_CONFIGS)

    def edit(present: SqsQueue) -> dict[str, str | None]:
        tags = present.tags | request.tags
        _check_tags(tags)
        return {TAGS: queue_attributes.write_table(tags)}

    await _alter(call, queue, edit)
    return {}


async def untag_queue(call: AwsCall, request: requests.UntagQueue) -> Answer:
    queue = call.queue(request.queue_url, Operation.ALTER_CONFIGS)

    def edit(present: SqsQueue) -> dict[str, str | None]:
        gone = request.tag_keys
        tags = {name: value for name, value in present.tags.items() if name not in gone}
        return {TAGS: queue_attributes.write_table(tags) or None}

    await _alter(call, queue, edit)
    return {}


async def list_queue_tags(call: AwsCall, request: requests.ListQueueTags) -> Answer:
    tags = call.queue(request.queue_url, Operation.DESCRIBE).tags
    return {"Tags": tags} if tags else {}


def _check_tags(tags: Mapping[str, str]) -> None:
    if len(tags) > TAGS_MAX:
        raise Fault("InvalidParameterValue", f"A queue has at most {TAGS_MAX} tags.")
    for name, value in tags.items():
        if not 1 <= len(name) <= TAG_KEY_CHARS_MAX or len(value) > TAG_VALUE_CHARS_MAX:
            raise invalid("Tags", name, "A tag's key or value is too long, or its key is empty.")


async def _alter(
    call: AwsCall, queue: SqsQueue, edit: Callable[[SqsQueue], dict[str, str | None]]
) -> None:
    """Changes a queue's configs based on those in the metadata store, not on the cached image."""

    def changed(configs: Mapping[str, str]) -> dict[str, str | None]:
        return edit(SqsQueue(replace(queue.topic, configs=configs), queue.broker))

    await call.gateway.configs.alter_topic(queue.name, changed)


# -- purging and deleting ---------------------------------------------------------------------


async def purge_queue(call: AwsCall, request: requests.PurgeQueue) -> Answer:
    await purge(call, call.queue(request.queue_url, Operation.DELETE))
    return {}


async def delete_queue(call: AwsCall, request: requests.DeleteQueue) -> Answer:
    queue = call.queue(request.queue_url, Operation.DELETE)
    response = await call.gateway.handlers.ask(
        call.principal,
        DeleteTopicsRequest(
            topics=[DeleteTopicState(name=queue.name, topic_id=NO_TOPIC_ID)],
            topic_names=[],
            timeout_ms=TIMEOUT_MS,
        ),
        DeleteTopicsResponse,
    )
    for row in response.responses:
        _require(row.error_code, row.error_message)
    return {}
