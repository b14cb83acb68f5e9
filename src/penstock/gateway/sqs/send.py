"""SendMessage, SendMessageBatch: a message becomes a record of the queue's topic.

The body becomes the value, attributes become headers. MessageGroupId becomes the key, so a group
keeps its order in a FIFO queue. DelaySeconds and MessageDeduplicationId become the delivery headers
of all queues; without an id, a queue with content-based deduplication uses the SHA-256 of the body.
The response comes when the record is committed; its SequenceNumber is the record's offset.
"""

import re
import uuid
from collections.abc import Mapping, Sequence
from hashlib import sha256

from penstock.base.errors import Refused
from penstock.base.ports import Random
from penstock.broker.api.route_row import Operation
from penstock.gateway.core.messages import MESSAGE_ID, OutgoingMessage, Placed
from penstock.gateway.sqs import requests
from penstock.gateway.sqs.call import Answer, AwsCall, as_fault, batch_answer, check_entries
from penstock.gateway.sqs.errors import Fault, invalid, missing
from penstock.gateway.sqs.message_attributes import (
    TRACE,
    TRACE_ATTRIBUTE,
    AttributeValue,
    check_text,
    digest_attributes,
    digest_body,
    headers_of,
    size_of,
)
from penstock.gateway.sqs.queue_attributes import NUMBERS, SqsQueue

TOKEN = re.compile(r"[!-~]{1,128}")
"""Group and deduplication ids: alphanumeric characters and punctuation."""
SEQUENCE_DIGITS = 20
NOT_FOR_THIS_TYPE = "The request include parameter that is not valid for this queue type."
"""Amazon's error message."""


async def send_message(call: AwsCall, request: requests.SendMessage) -> Answer:
    queue = call.queue(request.queue_url, Operation.WRITE)
    message = outgoing(queue, request, new_message_id(call.node.random), call.trace)
    (placed,) = await call.gateway.publish(call.principal, queue.name, [message])
    if isinstance(placed, Refused):
        raise placed
    return sent(queue, request, placed)


async def send_message_batch(call: AwsCall, request: requests.SendMessageBatch) -> Answer:
    queue = call.queue(request.queue_url, Operation.WRITE)
    entries = request.entries
    size = sum(message_size(entry) for entry in entries)
    check_entries(entries, "SendMessageBatchRequestEntry", size=size)
    if queue.is_fifo:
        for entry in entries:
            _check_ids_of_entry(queue, entry)
    results = await send_all(call, queue, entries)
    return batch_answer(entries, results)


async def send_all(
    call: AwsCall, queue: SqsQueue, messages: Sequence[requests.MessageEntry]
) -> list[Answer | Fault]:
    """Sends each message on its own; returns its response, or its error."""
    results: list[Answer | Fault] = [{} for _ in messages]
    going: list[tuple[int, OutgoingMessage]] = []
    for at, message in enumerate(messages):
        try:
            message_id = new_message_id(call.node.random)
            going.append((at, outgoing(queue, message, message_id, call.trace)))
        except Fault as fault:
            results[at] = fault
    if going:
        placed = await call.gateway.publish(call.principal, queue.name, [out for _, out in going])
        for (at, _), place in zip(going, placed, strict=True):
            results[at] = (
                as_fault(place) if isinstance(place, Refused) else sent(queue, messages[at], place)
            )
    return results


def new_message_id(random: Random) -> str:
    return str(uuid.UUID(bytes=random.random_bytes(16), version=4))


def message_size(message: requests.MessageEntry) -> int:
    return len(message.message_body.encode()) + size_of(message.message_attributes)


def _check_ids_of_entry(queue: SqsQueue, entry: requests.MessageEntry) -> None:
    """A FIFO batch with missing ids fails as a whole, with another error code."""
    try:
        _ids(queue, entry)
    except Fault as fault:
        raise Fault("InvalidParameterValue", fault.message) from None


def outgoing(
    queue: SqsQueue, message: requests.MessageEntry, message_id: str, trace: str | None = None
) -> OutgoingMessage:
    """Returns the message to publish; raises Fault if the queue does not accept it.

    `trace`: the request's trace, used unless the message has its own.
    """
    _check_body(queue, message)
    group_id, dedup_id = _ids(queue, message)
    headers = headers_of(message.message_attributes) + _system_headers(message, trace)
    return OutgoingMessage(
        payload=message.message_body.encode(),
        key=None if group_id is None else group_id.encode(),
        headers=(*headers, (MESSAGE_ID, message_id.encode())),
        delay_ms=_delay_ms(queue, message),
        dedup_id=dedup_id,
    )


def _check_body(queue: SqsQueue, message: requests.MessageEntry) -> None:
    if not message.message_body:
        raise missing("MessageBody")
    check_text(message.message_body, "The message body")
    most = queue.number("MaximumMessageSize")
    if message_size(message) > most:
        raise Fault(
            "InvalidParameterValue",
            f"One or more parameters are invalid. Reason: Message must be shorter than {most} "
            "bytes.",
        )


def _ids(queue: SqsQueue, message: requests.MessageEntry) -> tuple[str | None, str | None]:
    """Returns the message's group and deduplication ids."""
    group_id, dedup_id = message.message_group_id, message.message_deduplication_id
    for name, value in (("MessageGroupId", group_id), ("MessageDeduplicationId", dedup_id)):
        if value is not None and not TOKEN.fullmatch(value):
            raise invalid(
                name,
                value,
                f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in "
                "length.",
            )
    if not queue.is_fifo:
        if dedup_id is not None:
            raise invalid(
                "MessageDeduplicationId",
                dedup_id,
                NOT_FOR_THIS_TYPE,
            )
        return group_id, None
    if group_id is None:
        raise missing("MessageGroupId")
    if dedup_id is None:
        if not queue.dedups_by_content:
            raise Fault(
                "InvalidParameterValue",
                "The queue should either have ContentBasedDeduplication enabled or "
                "MessageDeduplicationId provided explicitly",
            )
        dedup_id = sha256(message.message_body.encode()).hexdigest()
    return group_id, dedup_id


def _delay_ms(queue: SqsQueue, message: requests.MessageEntry) -> int:
    seconds = message.delay_seconds
    if seconds is None or (queue.is_fifo and seconds == 0):
        return queue.number("DelaySeconds") * 1000
    limit = NUMBERS["DelaySeconds"]
    if not limit.low <= seconds <= limit.high:
        raise invalid("DelaySeconds", seconds, f"DelaySeconds must be >= 0 and <= {limit.high}.")
    if queue.is_fifo:
        raise invalid(
            "DelaySeconds",
            seconds,
            NOT_FOR_THIS_TYPE,
        )
    return seconds * 1000


def _system_headers(
    message: requests.MessageEntry, trace: str | None
) -> tuple[tuple[str, bytes | None], ...]:
    for name, value in message.message_system_attributes.items():
        if name != TRACE_ATTRIBUTE or not value.string_value:
            raise invalid(
                "MessageSystemAttributes", name, f"Only {TRACE_ATTRIBUTE} can be set, to a String."
            )
        return ((TRACE, value.content),)
    return () if trace is None else ((TRACE, trace.encode()),)


def sent(queue: SqsQueue, message: requests.MessageEntry, placed: Placed) -> Answer:
    """Formats the response for a message."""
    answer: Answer = {
        "MD5OfMessageBody": digest_body(message.message_body),
        "MessageId": placed.message_id,
    }
    _add_digest(answer, "MD5OfMessageAttributes", message.message_attributes)
    _add_digest(answer, "MD5OfMessageSystemAttributes", message.message_system_attributes)
    if queue.is_fifo:
        answer["SequenceNumber"] = sequence_number(placed.offset)
    return answer


def sequence_number(offset: int) -> str:
    return f"{offset:0{SEQUENCE_DIGITS}d}"


def _add_digest(answer: Answer, name: str, attributes: Mapping[str, AttributeValue]) -> None:
    if attributes:
        answer[name] = digest_attributes(attributes)
