"""The requests of SNS, as its forms bring them."""

from msgspec import field

from penstock.gateway.sqs.digests import AttributeValue
from penstock.gateway.sqs.requests import Request


class CreateTopic(Request, frozen=True):
    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


class OfTopic(Request, frozen=True):
    """A request about one topic."""

    topic_arn: str


class DeleteTopic(OfTopic, frozen=True):
    pass


class GetTopicAttributes(OfTopic, frozen=True):
    pass


class SetTopicAttributes(OfTopic, frozen=True, kw_only=True):
    attribute_name: str
    attribute_value: str = ""


class ListTopics(Request, frozen=True):
    next_token: str | None = None


class Subscribe(OfTopic, frozen=True, kw_only=True):
    protocol: str
    endpoint: str
    attributes: dict[str, str] = field(default_factory=dict)


class OfSubscription(Request, frozen=True):
    """A request about one subscription."""

    subscription_arn: str


class Unsubscribe(OfSubscription, frozen=True):
    pass


class GetSubscriptionAttributes(OfSubscription, frozen=True):
    pass


class SetSubscriptionAttributes(OfSubscription, frozen=True, kw_only=True):
    attribute_name: str
    attribute_value: str = ""


class ListSubscriptions(Request, frozen=True):
    next_token: str | None = None


class ListSubscriptionsByTopic(OfTopic, frozen=True):
    next_token: str | None = None


class OfResource(Request, frozen=True):
    """A request about the tags of a topic."""

    resource_arn: str


class TagResource(OfResource, frozen=True, kw_only=True):
    tags: dict[str, str]


class UntagResource(OfResource, frozen=True, kw_only=True):
    tag_keys: list[str]


class ListTagsForResource(OfResource, frozen=True):
    pass


class Notice(Request, frozen=True, kw_only=True):
    """What is published, alone or in a batch."""

    message: str
    subject: str | None = None
    message_structure: str | None = None
    message_attributes: dict[str, AttributeValue] = field(default_factory=dict)
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class Publish(Notice, frozen=True, kw_only=True):
    topic_arn: str | None = None
    target_arn: str | None = None


class PublishEntry(Notice, frozen=True, kw_only=True):
    id: str


class PublishBatch(OfTopic, frozen=True, kw_only=True):
    publish_batch_request_entries: list[PublishEntry] = field(default_factory=list)
