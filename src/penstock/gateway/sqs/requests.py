"""The requests of SQS, as both protocols bring them.

A request is one struct; its fields are named as in the JSON protocol. Numbers may come as text,
as the query protocol sends them. What is missing or of the wrong kind is refused here; limits on
values are the handlers' business.
"""

from functools import cache
from typing import TypeVar

import msgspec

from penstock.gateway.sqs.digests import AttributeValue
from penstock.gateway.sqs.errors import Fault, missing

Attributes = dict[str, AttributeValue]


class Request(msgspec.Struct, frozen=True, rename="pascal"):
    """What every request is: fields that it does not know are ignored."""


RequestT = TypeVar("RequestT", bound=Request)


def read_request(kind: type[RequestT], values: dict[str, object]) -> RequestT:
    for name in _required(kind):
        if name not in values:
            raise missing(name)
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Fault("InvalidParameterValue", f"The request cannot be read: {error}.") from error


@cache
def _required(kind: type[Request]) -> list[str]:
    """The fields that every request of this kind must have; slow to find out."""
    return [field.encode_name for field in msgspec.structs.fields(kind) if field.required]


class OfQueue(Request, frozen=True):
    """A request about one queue."""

    queue_url: str


class CreateQueue(Request, frozen=True):
    queue_name: str
    attributes: dict[str, str] = {}
    tags: dict[str, str] = {}


class GetQueueUrl(Request, frozen=True):
    queue_name: str


class ListQueues(Request, frozen=True):
    queue_name_prefix: str = ""
    max_results: int | None = None
    next_token: str | None = None


class ListDeadLetterSourceQueues(OfQueue, frozen=True):
    max_results: int | None = None
    next_token: str | None = None


class DeleteQueue(OfQueue, frozen=True):
    pass


class PurgeQueue(OfQueue, frozen=True):
    pass


class GetQueueAttributes(OfQueue, frozen=True):
    attribute_names: list[str] = []


class SetQueueAttributes(OfQueue, frozen=True, kw_only=True):
    attributes: dict[str, str]


class TagQueue(OfQueue, frozen=True, kw_only=True):
    tags: dict[str, str]


class UntagQueue(OfQueue, frozen=True, kw_only=True):
    tag_keys: list[str]


class ListQueueTags(OfQueue, frozen=True):
    pass


class BatchEntry(Request, frozen=True):
    """One of a batch."""

    id: str


class MessageEntry(Request, frozen=True, kw_only=True):
    """What is sent, alone or in a batch."""

    message_body: str
    delay_seconds: int | None = None
    message_attributes: Attributes = {}
    message_system_attributes: Attributes = {}
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessage(MessageEntry, frozen=True, kw_only=True):
    queue_url: str


class SendEntry(MessageEntry, frozen=True, kw_only=True):
    id: str


class SendMessageBatch(OfQueue, frozen=True, kw_only=True):
    entries: list[SendEntry] = []


class ReceiveMessage(OfQueue, frozen=True):
    attribute_names: list[str] = []
    message_system_attribute_names: list[str] = []
    message_attribute_names: list[str] = []
    max_number_of_messages: int = 1
    visibility_timeout: int | None = None
    wait_time_seconds: int | None = None
    receive_request_attempt_id: str | None = None


class DeleteMessage(OfQueue, frozen=True, kw_only=True):
    receipt_handle: str


class DeleteEntry(BatchEntry, frozen=True, kw_only=True):
    receipt_handle: str


class DeleteMessageBatch(OfQueue, frozen=True, kw_only=True):
    entries: list[DeleteEntry] = []


class ChangeMessageVisibility(OfQueue, frozen=True, kw_only=True):
    receipt_handle: str
    visibility_timeout: int


class ChangeEntry(BatchEntry, frozen=True, kw_only=True):
    receipt_handle: str
    visibility_timeout: int = 0


class ChangeMessageVisibilityBatch(OfQueue, frozen=True, kw_only=True):
    entries: list[ChangeEntry] = []


class StartMessageMoveTask(Request, frozen=True):
    source_arn: str
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None


class ListMessageMoveTasks(Request, frozen=True):
    source_arn: str
    max_results: int | None = None


class CancelMessageMoveTask(Request, frozen=True):
    task_handle: str
