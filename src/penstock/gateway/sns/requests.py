"""Requests of SNS, as parsed from its forms.

Amazon resource names (ARNs) of SNS topics and subscriptions. A topic is
`arn:aws:sns:<region>:000000000000:<name>`; a subscription appends its id. SNS topics are not
Kafka topics: an SNS topic may have the same name as a queue.
"""

import re

from msgspec import field

from penstock.gateway.sqs.errors import Fault
from penstock.gateway.sqs.message_attributes import AttributeValue
from penstock.gateway.sqs.queue_names import ACCOUNT
from penstock.gateway.sqs.requests import Request

NAME_CHARS_MAX = 256

_NAME = re.compile(r"[A-Za-z0-9_-]+(\.fifo)?")


def check_new_name(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > NAME_CHARS_MAX:
        raise Fault("InvalidParameter", "Invalid parameter: Topic Name")


def topic_arn(region: str, name: str) -> str:
    return f"arn:aws:sns:{region}:{ACCOUNT}:{name}"


def topic_of_arn(arn: str) -> str:
    return _parts(arn, 6, "TopicArn")[5]


def subscription_arn(region: str, topic: str, subscription_id: str) -> str:
    return f"{topic_arn(region, topic)}:{subscription_id}"


def subscription_of_arn(arn: str) -> tuple[str, str]:
    """Returns the topic's name and the subscription's id."""
    parts = _parts(arn, 7, "SubscriptionArn")
    return parts[5], parts[6]


def _parts(arn: str, count: int, parameter: str) -> list[str]:
    parts = arn.split(":")
    if len(parts) != count or parts[:3] != ["arn", "aws", "sns"] or not all(parts[5:]):
        raise Fault("InvalidParameter", f"Invalid parameter: {parameter}")
    return parts


class CreateTopic(Request, frozen=True):
    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


class TopicRequest(Request, frozen=True):
    """Request about one topic."""

    topic_arn: str


class DeleteTopic(TopicRequest, frozen=True):
    pass


class GetTopicAttributes(TopicRequest, frozen=True):
    pass


class SetTopicAttributes(TopicRequest, frozen=True, kw_only=True):
    attribute_name: str
    attribute_value: str = ""


class ListTopics(Request, frozen=True):
    next_token: str | None = None


class Subscribe(TopicRequest, frozen=True, kw_only=True):
    protocol: str
    endpoint: str
    attributes: dict[str, str] = field(default_factory=dict)


class SubscriptionRequest(Request, frozen=True):
    """Request about one subscription."""

    subscription_arn: str


class Unsubscribe(SubscriptionRequest, frozen=True):
    pass


class GetSubscriptionAttributes(SubscriptionRequest, frozen=True):
    pass


class SetSubscriptionAttributes(SubscriptionRequest, frozen=True, kw_only=True):
    attribute_name: str
    attribute_value: str = ""


class ListSubscriptions(Request, frozen=True):
    next_token: str | None = None


class ListSubscriptionsByTopic(TopicRequest, frozen=True):
    next_token: str | None = None


class ResourceRequest(Request, frozen=True):
    """Request about the tags of a topic."""

    resource_arn: str


class TagResource(ResourceRequest, frozen=True, kw_only=True):
    tags: dict[str, str]


class UntagResource(ResourceRequest, frozen=True, kw_only=True):
    tag_keys: list[str]


class ListTagsForResource(ResourceRequest, frozen=True):
    pass


class SnsMessage(Request, frozen=True, kw_only=True):
    """Message to publish, alone or in a batch."""

    message: str
    subject: str | None = None
    message_structure: str | None = None
    message_attributes: dict[str, AttributeValue] = field(default_factory=dict)
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class Publish(SnsMessage, frozen=True, kw_only=True):
    topic_arn: str | None = None
    target_arn: str | None = None


class PublishEntry(SnsMessage, frozen=True, kw_only=True):
    id: str


class PublishBatch(TopicRequest, frozen=True, kw_only=True):
    publish_batch_request_entries: list[PublishEntry] = field(default_factory=list)
