"""SNS topics: create, list, describe, change, tag, delete.

A topic is one record of the metadata store with all its subscriptions (`/sns/<name>`). So
subscriptions are as durable as the cluster itself, and each change is one compare-and-swap.
Bounds: number of topics, number of tags, sizes of attributes.
"""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from penstock.broker.api.route_row import Operation
from penstock.gateway.core.cluster_types import FanoutRecord
from penstock.gateway.core.fanouts import size_of
from penstock.gateway.core.permissions import require_topic
from penstock.gateway.sns import requests
from penstock.gateway.sqs.call import Answer, AwsCall
from penstock.gateway.sqs.errors import Fault
from penstock.gateway.sqs.queue_names import ACCOUNT, is_fifo
from penstock.gateway.sqs.requests import page

TOPICS_MAX = 10_000
RECORD_BYTES_MAX = 1 << 20
"""Maximum size of a topic with all its subscriptions: the metadata store's limit for a value."""
PAGE = 100
TAGS_MAX = 50
ATTRIBUTE_CHARS_MAX = 64 * 1024
CONTENT_DEDUP = "ContentBasedDeduplication"
TOPIC_ATTRIBUTES = (CONTENT_DEDUP, "DeliveryPolicy", "DisplayName", "FifoTopic", "Policy")


# -- topics -----------------------------------------------------------------------------------


async def create_topic(call: AwsCall, request: requests.CreateTopic) -> Answer:
    name = request.name
    requests.check_new_name(name)
    require_topic(call.node, call.principal, Operation.CREATE, name)
    attributes = dict(request.attributes)
    for attribute, value in attributes.items():
        _check_topic_attribute(attribute, value)
    if (attributes.pop("FifoTopic", "true" if is_fifo(name) else "false") == "true") != is_fifo(
        name
    ):
        raise Fault(
            "InvalidParameter", "Invalid parameter: FIFO topic names, and only they, end in .fifo"
        )
    _check_tags(request.tags)

    def edit(present: FanoutRecord | None) -> FanoutRecord:
        if present is not None:
            if any(present.attributes.get(key, "") != text for key, text in attributes.items()):
                raise Fault(
                    "InvalidParameter",
                    "Invalid parameter: Attributes Reason: Topic already exists with different "
                    "attributes",
                )
            return present
        if len(call.gateway.fanouts.all) >= TOPICS_MAX:
            raise Fault(
                "TopicLimitExceeded",
                f"There are {TOPICS_MAX} topics, which is the maximum.",
            )
        return FanoutRecord(attributes=attributes, tags=request.tags)

    await call.gateway.fanouts.change(name, edit)
    return {"TopicArn": requests.topic_arn(call.region, name)}


async def delete_topic(call: AwsCall, request: requests.DeleteTopic) -> Answer:
    name = requests.topic_of_arn(request.topic_arn)
    require_topic(call.node, call.principal, Operation.DELETE, name)
    await call.gateway.fanouts.change(name, lambda present: None)
    return {}


async def list_topics(call: AwsCall, request: requests.ListTopics) -> Answer:
    names_seen = [name for name in sorted(call.gateway.fanouts.all) if call.may_see(name)]
    shown, token = page(names_seen, PAGE, request.next_token)
    answer: Answer = {
        "Topics": [{"TopicArn": requests.topic_arn(call.region, name)} for name in shown]
    }
    return answer | ({"NextToken": token} if token else {})


async def get_topic_attributes(call: AwsCall, request: requests.GetTopicAttributes) -> Answer:
    name, record = find(call, request.topic_arn, Operation.DESCRIBE)
    shown = {
        "TopicArn": requests.topic_arn(call.region, name),
        "Owner": ACCOUNT,
        "SubscriptionsConfirmed": str(len(record.subscriptions)),
        "SubscriptionsPending": "0",
        "SubscriptionsDeleted": "0",
    }
    if is_fifo(name):
        shown |= {"FifoTopic": "true", CONTENT_DEDUP: "false"}
    return {"Attributes": shown | record.attributes}


async def set_topic_attributes(call: AwsCall, request: requests.SetTopicAttributes) -> Answer:
    name, _ = find(call, request.topic_arn, Operation.ALTER_CONFIGS)
    attribute, value = request.attribute_name, request.attribute_value
    _check_topic_attribute(attribute, value)
    if attribute == "FifoTopic":
        raise Fault("InvalidParameter", "Invalid parameter: AttributeName")
    await alter(
        call,
        name,
        lambda record: replace(record, attributes={**record.attributes, attribute: value}),
    )
    return {}


def find(call: AwsCall, arn: str, operation: Operation) -> tuple[str, FanoutRecord]:
    """Returns a topic; refuses unless the caller may perform `operation`."""
    name = requests.topic_of_arn(arn)
    require_topic(call.node, call.principal, operation, name)
    record = call.gateway.fanouts.all.get(name)
    if record is None:
        raise Fault("NotFound", "Topic does not exist")
    return name, record


async def alter(call: AwsCall, name: str, edit: Callable[[FanoutRecord], FanoutRecord]) -> None:
    def changed(present: FanoutRecord | None) -> FanoutRecord:
        if present is None:
            raise Fault("NotFound", "Topic does not exist")
        record = edit(present)
        if size_of(record) > RECORD_BYTES_MAX:
            raise Fault(
                "InvalidParameter",
                f"Invalid parameter: topic and subscriptions exceed {RECORD_BYTES_MAX} bytes",
            )
        return record

    await call.gateway.fanouts.change(name, changed)


def _check_topic_attribute(name: str, value: str) -> None:
    if name not in TOPIC_ATTRIBUTES or len(value) > ATTRIBUTE_CHARS_MAX:
        raise Fault("InvalidParameter", f"Invalid parameter: Attributes Reason: {name}")
    if name in (CONTENT_DEDUP, "FifoTopic") and value not in ("true", "false"):
        raise Fault("InvalidParameter", f"Invalid parameter: {name} must be true or false")


# -- tags -------------------------------------------------------------------------------------


async def tag_resource(call: AwsCall, request: requests.TagResource) -> Answer:
    name, _ = find(call, request.resource_arn, Operation.ALTER_CONFIGS)

    def edit(record: FanoutRecord) -> FanoutRecord:
        tags = record.tags | request.tags
        _check_tags(tags)
        return replace(record, tags=tags)

    await alter(call, name, edit)
    return {}


async def untag_resource(call: AwsCall, request: requests.UntagResource) -> Answer:
    name, _ = find(call, request.resource_arn, Operation.ALTER_CONFIGS)

    def edit(record: FanoutRecord) -> FanoutRecord:
        gone = request.tag_keys
        return replace(record, tags={k: v for k, v in record.tags.items() if k not in gone})

    await alter(call, name, edit)
    return {}


async def list_tags_for_resource(call: AwsCall, request: requests.ListTagsForResource) -> Answer:
    _, record = find(call, request.resource_arn, Operation.DESCRIBE)
    return {"Tags": [{"Key": key, "Value": value} for key, value in record.tags.items()]}


def _check_tags(tags: Mapping[str, str]) -> None:
    if len(tags) > TAGS_MAX:
        raise Fault("TagLimitExceeded", f"A topic has at most {TAGS_MAX} tags.")
