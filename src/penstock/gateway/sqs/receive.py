"""ReceiveMessage: leases messages of a queue for their visibility timeout, and returns them.

Long polling waits in the node until there is a message; a caller that disconnects leases nothing. A
visibility timeout of 0 returns messages without hiding them from other consumers. A value that is
not text comes as base64, with the attribute `penstock-encoding`.
"""

import base64
from collections.abc import Sequence
from hashlib import blake2b
from uuid import UUID

from penstock.broker.api.route_row import Operation
from penstock.gateway.core.gateway import SettleAction, Settlement
from penstock.gateway.core.messages import ReceivedMessage, message_id_of
from penstock.gateway.sqs import requests
from penstock.gateway.sqs.call import Answer, AwsCall
from penstock.gateway.sqs.errors import invalid
from penstock.gateway.sqs.message_attributes import (
    TRACE,
    TRACE_ATTRIBUTE,
    AttributeValue,
    attributes_of,
    digest_attributes,
    digest_body,
    header,
    is_text,
)
from penstock.gateway.sqs.queue_attributes import NUMBERS, SqsQueue
from penstock.gateway.sqs.queue_names import ACCOUNT
from penstock.gateway.sqs.send import sequence_number
from penstock.state.queues import dead_letter_format, delivery_headers

MESSAGES_MAX = 10
DEFAULT_GROUP = "sqs"
BACKOFF = "share.retry.backoff.ms"
ENCODING = "penstock-encoding"
BASE64 = AttributeValue("String", "base64")
SHORTEST_LOCK_MS = 1_000
"""Lease of messages that are released at once (visibility timeout 0)."""


async def receive_message(call: AwsCall, request: requests.ReceiveMessage) -> Answer:
    queue = call.queue(request.queue_url, Operation.READ)
    most = request.max_number_of_messages
    if not 1 <= most <= MESSAGES_MAX:
        raise invalid(
            "MaxNumberOfMessages", most, f"Must be between 1 and {MESSAGES_MAX}, if provided."
        )
    timeout_s = _or_own(queue, "VisibilityTimeout", request.visibility_timeout)
    wait_s = _or_own(
        queue, "ReceiveMessageWaitTimeSeconds", request.wait_time_seconds, "WaitTimeSeconds"
    )
    await prepare_group(call, queue.group)
    lock_ms = timeout_s * 1000 or SHORTEST_LOCK_MS
    # As in SQS, a caller that asks for ten messages gets ten: if they were shared among waiting
    # callers, each message would cost a request.
    async with call.client() as client:
        received = await call.gateway.receive(
            call.principal,
            queue.name,
            queue.group,
            records_max=most,
            wait_ms=wait_s * 1000,
            lock_ms=lock_ms,
            share_min=MESSAGES_MAX,
            with_followers=queue.is_fifo,
            on_wait=client.start,
        )
    if not timeout_s and received:
        await call.gateway.settle(
            call.principal,
            [Settlement(got.receipt, SettleAction.RELEASE, delay_ms=0) for got in received],
        )
    if queue.is_fifo:
        received = _by_group(received)
    names = {*request.attribute_names, *request.message_system_attribute_names}
    messages = [
        _formatted(call, queue, got, names, request.message_attribute_names) for got in received
    ]
    return {"Messages": messages} if messages else {}


def _by_group(received: Sequence[ReceivedMessage]) -> list[ReceivedMessage]:
    """Sorts messages by group: all of one group, then all of the next, as Amazon does."""
    groups: dict[bytes | None, list[ReceivedMessage]] = {}
    for got in received:
        groups.setdefault(got.key, []).append(got)
    return [got for group in groups.values() for got in group]


async def prepare_group(call: AwsCall, group: str) -> None:
    """Sets the group's backoff to 0, as in SQS: an expired message is available at once.

    Only for SQS's default group, and only if its backoff is not set: other groups are configured
    by their users.
    """
    node = call.node
    if group != DEFAULT_GROUP or BACKOFF in node.image.group_configs.get(group, {}):
        return
    await call.gateway.configs.alter_group(group, {BACKOFF: "0"})


def _between(name: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise invalid(name, value, f"Must be >= {low} and <= {high}, if provided.")
    return value


def _or_own(queue: SqsQueue, attribute: str, given: int | None, name: str = "") -> int:
    """Returns the request's value, or the queue's if it is None."""
    if given is None:
        return queue.number(attribute)
    limit = NUMBERS[attribute]
    return _between(name or attribute, given, limit.low, limit.high)


# -- responses --------------------------------------------------------------------------------


def _formatted(
    call: AwsCall, queue: SqsQueue, got: ReceivedMessage, system: set[str], wanted: Sequence[str]
) -> dict[str, object]:
    body, is_encoded = _body(got.payload)
    attributes = attributes_of(got.headers, wanted)
    if is_encoded:
        attributes[ENCODING] = BASE64
    message: dict[str, object] = {
        "MessageId": message_id_of(got.headers) or derived_id(queue, got),
        "ReceiptHandle": got.receipt,
        "MD5OfBody": digest_body(body),
        "Body": body,
    }
    shown = _system_attributes(call, queue, got)
    if "All" not in system:
        shown = {name: value for name, value in shown.items() if name in system}
    if shown:
        message["Attributes"] = shown
    if attributes:
        message["MD5OfMessageAttributes"] = digest_attributes(attributes)
        message["MessageAttributes"] = attributes
    return message


def _body(payload: bytes | None) -> tuple[str, bool]:
    """Returns a value as text; and True if it is encoded as base64."""
    payload = payload or b""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        text = "\0"
    if is_text(text):
        return text, False
    return base64.b64encode(payload).decode(), True


def derived_id(queue: SqsQueue, got: ReceivedMessage) -> str:
    """Derives an id for a message without one, stable by its partition and offset."""
    place = b"%d/%d" % (got.partition, got.offset)
    return str(UUID(bytes=blake2b(queue.topic.id + place, digest_size=16).digest(), version=4))


def _system_attributes(call: AwsCall, queue: SqsQueue, got: ReceivedMessage) -> dict[str, str]:
    shown = {
        "SenderId": ACCOUNT,
        "SentTimestamp": str(got.timestamp_ms),
        "ApproximateReceiveCount": str(got.delivery_count),
        "ApproximateFirstReceiveTimestamp": str(call.node.clock.now_ms()),
    }
    dedup_id = header(got.headers, delivery_headers.DEDUP_ID)
    source = header(got.headers, dead_letter_format.TOPIC)
    trace = header(got.headers, TRACE)
    if got.key is not None:
        shown["MessageGroupId"] = got.key.decode("utf-8", "replace")
    if queue.is_fifo:
        shown["SequenceNumber"] = sequence_number(got.offset)
        if dedup_id is not None:
            shown["MessageDeduplicationId"] = dedup_id.decode("utf-8", "replace")
    if source is not None:
        shown["DeadLetterQueueSourceArn"] = call.arn(source.decode("utf-8", "replace"))
    if trace is not None:
        shown[TRACE_ATTRIBUTE] = trace.decode("utf-8", "replace")
    return {name: value for name, value in shown.items() if is_text(value)}
