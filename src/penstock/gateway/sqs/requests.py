"""Requests of SQS, in the form shared by both protocols.

A request is a struct whose fields are named as in the JSON protocol. Numbers may come as strings,
as the query protocol sends them. Missing fields and wrong types are refused here; handlers check
the limits of values.

Pagination of long lists: a token names the item after which the next page starts.
"""

import base64
import binascii
from functools import cache
from typing import TypeVar

import msgspec

from penstock.gateway.sqs.errors import Fault, invalid, missing
from penstock.gateway.sqs.message_attributes import AttributeValue

PAGE_MAX = 1_000


def page(
    names: list[str], most: int | None, token: str | None, *, page_max: int = PAGE_MAX
) -> tuple[list[str], str | None]:
    """Returns a page of sorted names, and the token of the next page, if any."""
    if most is not None and not 1 <= most <= page_max:
        raise invalid("MaxResults", most, f"Must be between 1 and {page_max}, if provided.")
    size = most or page_max
    if token:
        after = _read(token)
        names = [name for name in names if name > after]
    shown = names[:size]
    if len(names) <= size:
        return shown, None
    return shown, base64.urlsafe_b64encode(shown[-1].encode()).decode()


def _read(token: str) -> str:
    try:
        return base64.urlsafe_b64decode(token.encode("ascii")).decode()
    except (binascii.Error, ValueError) as error:
        raise invalid("NextToken", token, "It must come from an earlier response.") from error


Attributes = dict[str, AttributeValue]


class Request(msgspec.Struct, frozen=True, rename="pascal"):
    """Base of all requests; unknown fields are ignored."""


RequestT = TypeVar("RequestT", bound=Request)


def read_request(kind: type[RequestT], values: dict[str, object]) -> RequestT:
    for name in _required(kind):
        if name not in values:
            raise missing(name)
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Fault("InvalidParameterValue", f"The request is invalid: {error}.") from error


@cache
def _required(kind: type[Request]) -> list[str]:
    """Returns the required fields of a request type; cached because finding them is slow."""
    return [field.encode_name for field in msgspec.structs.fields(kind) if field.required]


class QueueRequest(Request, frozen=True):
    """Request about one queue."""

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


class ListDeadLetterSourceQueues(QueueRequest, frozen=True):
    max_results: int | None = None
    next_token: str | None = None


class DeleteQueue(QueueRequest, frozen=True):
    pass


class PurgeQueue(QueueRequest, frozen=True):
    pass


class GetQueueAttributes(QueueRequest, frozen=True):
    attribute_names: list[str] = []


class SetQueueAttributes(QueueRequest, frozen=True, kw_only=True):
    attributes: dict[str, str]


class TagQueue(QueueRequest, frozen=True, kw_only=True):
    tags: dict[str, str]


class UntagQueue(QueueRequest, frozen=True, kw_only=True):
    tag_keys: list[str]


class ListQueueTags(QueueRequest, frozen=True):
    pass


class BatchEntry(Request, frozen=True):
    """Entry of a batch."""

    id: str


class MessageEntry(Request, frozen=True, kw_only=True):
    """Message to send, alone or in a batch."""

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


class SendMessageBatch(QueueRequest, frozen=True, kw_only=True):
    entries: list[SendEntry] = []


class ReceiveMessage(QueueRequest, frozen=True):
    attribute_names: list[str] = []
    message_system_attribute_names: list[str] = []
    message_attribute_names: list[str] = []
    max_number_of_messages: int = 1
    visibility_timeout: int | None = None
    wait_time_seconds: int | None = None
    receive_request_attempt_id: str | None = None


class DeleteMessage(QueueRequest, frozen=True, kw_only=True):
    receipt_handle: str


class DeleteEntry(BatchEntry, frozen=True, kw_only=True):
    receipt_handle: str


class DeleteMessageBatch(QueueRequest, frozen=True, kw_only=True):
    entries: list[DeleteEntry] = []


class ChangeMessageVisibility(QueueRequest, frozen=True, kw_only=True):
    receipt_handle: str
    visibility_timeout: int


class ChangeEntry(BatchEntry, frozen=True, kw_only=True):
    receipt_handle: str
    visibility_timeout: int = 0


class ChangeMessageVisibilityBatch(QueueRequest, frozen=True, kw_only=True):
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
