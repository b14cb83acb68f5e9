"""Requests of SNS, as parsed from its forms."""

from msgspec import field

from penstock.gateway.sqs.digests import AttributeValue
from penstock.gateway.sqs.requests import Request


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
