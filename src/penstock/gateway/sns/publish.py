"""Publish, PublishBatch: send a message to every subscribed queue whose filter policy matches.

The response comes when the message is committed in all of these queues, so a topic needs no log of
its own. If a queue cannot accept the message now, the publisher gets a retryable error. A retry may
then duplicate the message in the other queues, unless topic and queues are FIFO and recognize its
deduplication id. Deleted queues are skipped.

A queue gets the notification as JSON (`Type`, `Message`, `TopicArn`, ...; unsigned), or with
`RawMessageDelivery` the message itself with its attributes.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256

import msgspec

from penstock.base.errors import Refused
from penstock.broker.api.route_row import Operation
from penstock.gateway.core.cluster_types import FanoutRecord, SubscriptionRecord
from penstock.gateway.sns import requests
from penstock.gateway.sns.filter_policies import matches_attributes, matches_body, read_policy
from penstock.gateway.sns.subscriptions import FILTER, OF_BODY, RAW, SCOPE
from penstock.gateway.sns.topics import CONTENT_DEDUP, find
from penstock.gateway.sqs.call import Answer, AwsCall, batch_answer, check_entries
from penstock.gateway.sqs.errors import Fault, fault_of, no_queue
from penstock.gateway.sqs.message_attributes import check_text, headers_of, size_of
from penstock.gateway.sqs.queue_attributes import SqsQueue
from penstock.gateway.sqs.queue_names import is_fifo
from penstock.gateway.sqs.requests import MessageEntry
from penstock.gateway.sqs.send import TOKEN, new_message_id, send_all

MESSAGE_BYTES_MAX = 256 * 1024
SUBJECT_CHARS_MAX = 100


async def publish(call: AwsCall, request: requests.Publish) -> Answer:
    arn = request.topic_arn or request.target_arn
    if arn is None:
        raise Fault("InvalidParameter", "Invalid parameter: TopicArn")
    name, record = find(call, arn, Operation.WRITE)
    (result,) = await _fan_out(call, name, record, [request])
    if isinstance(result, Fault):
        raise result
    return result


async def publish_batch(call: AwsCall, request: requests.PublishBatch) -> Answer:
    name, record = find(call, request.topic_arn, Operation.WRITE)
    entries = request.publish_batch_request_entries
    check_entries(entries, "PublishBatchRequestEntry", size=sum(_size(entry) for entry in entries))
    answer: Answer = {"Successful": [], "Failed": []}
    return answer | batch_answer(entries, await _fan_out(call, name, record, entries))


async def _fan_out(
    call: AwsCall, name: str, record: FanoutRecord, messages: Sequence[requests.SnsMessage]
) -> list[Answer | Fault]:
    """Publishes each message on its own; returns its id once all queues have it, or its error."""
    results: list[Answer | Fault] = []
    accepted: list[tuple[int, requests.SnsMessage, str]] = []
    for at, message in enumerate(messages):
        message_id = new_message_id(call.node.random)
        try:
            _check(name, record, message)
            accepted.append((at, message, message_id))
            results.append({"MessageId": message_id})
        except Fault as fault:
            results.append(fault)
    fan_out = _FanOut(call, name, record)
    await asyncio.gather(
        *(fan_out.deliver(subscription, accepted, results) for subscription in record.subscriptions)
    )
    return results


class _FanOut:
    """Delivers messages of one topic to its subscribed queues."""

    def __init__(self, call: AwsCall, name: str, record: FanoutRecord) -> None:
        self._call = call
        self._name = name
        self._record = record

    async def deliver(
        self,
        subscription: SubscriptionRecord,
        accepted: Sequence[tuple[int, requests.SnsMessage, str]],
        results: list[Answer | Fault],
    ) -> None:
        """Sends the matching messages to a queue; puts errors into `results`."""
        topic = self._call.node.image.topics.get(subscription.queue)
        chosen = [item for item in accepted if _matches_policy(subscription, item[1])]
        if topic is None or not chosen:
            return
        queue = self._call.queue_of(topic)
        messages = [self._message(subscription, queue, message, id_) for _, message, id_ in chosen]
        try:
            sent = await send_all(self._call, queue, messages)
        except Refused as refused:
            sent = [fault_of(refused)] * len(messages)
        for (at, _, _), outcome in zip(chosen, sent, strict=True):
            result = results[at]
            if isinstance(outcome, Fault):
                if outcome.name != no_queue().name:
                    results[at] = outcome
            elif not isinstance(result, Fault) and is_fifo(self._name):
                result.setdefault("SequenceNumber", outcome.get("SequenceNumber", "0"))

    def _message(
        self,
        subscription: SubscriptionRecord,
        queue: SqsQueue,
        message: requests.SnsMessage,
        id_: str,
    ) -> MessageEntry:
        is_raw = subscription.attributes.get(RAW, "").lower() == "true"
        dedup_id = message.message_deduplication_id
        if dedup_id is None and self._record.attributes.get(CONTENT_DEDUP) == "true":
            dedup_id = sha256(message.message.encode()).hexdigest()
        return MessageEntry(
            message_body=_text(message) if is_raw else self._envelope(subscription, message, id_),
            message_attributes=message.message_attributes if is_raw else {},
            message_group_id=message.message_group_id,
            message_deduplication_id=dedup_id if queue.is_fifo else None,
        )

    def _envelope(
        self, subscription: SubscriptionRecord, message: requests.SnsMessage, id_: str
    ) -> str:
        call, name = self._call, self._name
        at = datetime.fromtimestamp(call.node.clock.now_ms() / 1000, UTC)
        shown: dict[str, object] = {
            "Type": "Notification",
            "MessageId": id_,
            "TopicArn": requests.topic_arn(call.region, name),
            "Message": _text(message),
            "Timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "UnsubscribeURL": f"{call.base_url}/?Action=Unsubscribe&SubscriptionArn="
            + requests.subscription_arn(call.region, name, subscription.id),
        }
        if message.subject is not None:
            shown["Subject"] = message.subject
        if message.message_attributes:
            shown["MessageAttributes"] = _shown_attributes(message)
        return msgspec.json.encode(shown).decode()


def _shown_attributes(message: requests.SnsMessage) -> Mapping[str, object]:
    return {
        name: {
            "Type": value.data_type,
            "Value": value.binary_value if value.string_value is None else value.string_value,
        }
        for name, value in message.message_attributes.items()
    }


def _size(message: requests.SnsMessage) -> int:
    return len(message.message.encode()) + size_of(message.message_attributes)


def _check(name: str, record: FanoutRecord, message: requests.SnsMessage) -> None:
    """Refuses an invalid message before it is sent to any queue."""
    if not message.message:
        raise Fault("InvalidParameter", "Invalid parameter: Empty message")
    check_text(message.message, "The message")
    if _size(message) > MESSAGE_BYTES_MAX:
        raise Fault("InvalidParameter", "Invalid parameter: Message too long")
    subject = message.subject
    if subject is not None and not (
        0 < len(subject) <= SUBJECT_CHARS_MAX and subject.isprintable()
    ):
        raise Fault("InvalidParameter", "Invalid parameter: Subject")
    headers_of(message.message_attributes)
    _text(message)
    for value in (message.message_group_id, message.message_deduplication_id):
        if value is not None and not TOKEN.fullmatch(value):
            raise Fault(
                "InvalidParameter", "Invalid parameter: MessageGroupId or MessageDeduplicationId"
            )
    if not is_fifo(name):
        if message.message_deduplication_id is not None:
            raise Fault(
                "InvalidParameter", "Invalid parameter: MessageDeduplicationId Reason: not FIFO"
            )
        return
    if message.message_group_id is None:
        raise Fault("InvalidParameter", "Invalid parameter: The MessageGroupId is required")
    if message.message_deduplication_id is None and record.attributes.get(CONTENT_DEDUP) != "true":
        raise Fault(
            "InvalidParameter",
            "Invalid parameter: The topic should either have ContentBasedDeduplication enabled or "
            "MessageDeduplicationId provided explicitly",
        )


def _text(message: requests.SnsMessage) -> str:
    """Returns the message for queues; MessageStructure json may have one for each protocol."""
    if message.message_structure is None:
        return message.message
    try:
        texts = msgspec.json.decode(message.message, type=dict[str, str])
    except msgspec.DecodeError as error:
        raise Fault("InvalidParameter", f"Invalid parameter: Message Structure: {error}") from error
    text = texts.get("sqs", texts.get("default"))
    if message.message_structure != "json" or not text:
        raise Fault("InvalidParameter", "Invalid parameter: Message Structure - No default entry")
    return text


def _matches_policy(subscription: SubscriptionRecord, message: requests.SnsMessage) -> bool:
    text = subscription.attributes.get(FILTER)
    if not text:
        return True
    policy = read_policy(text)
    if subscription.attributes.get(SCOPE) == OF_BODY:
        return matches_body(policy, _text(message))
    return matches_attributes(policy, message.message_attributes)
