"""Publish, PublishBatch: one message to every queue that subscribes and wants it.

The answer comes when the message is committed in all of these queues, so a topic needs no log of
its own. If one of them cannot take it now the publisher is told to try again: the others may then
have it twice, unless topic and queues are FIFO, which know it by its deduplication id. A queue that
was deleted is passed over.

A queue gets the notification as JSON (`Type`, `MessageEntry`, `TopicArn`, ...; unsigned), or with
`RawMessageDelivery` the message as it is, attributes too.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256

import msgspec

from penstock.base.errors import Refused
from penstock.broker.api.route_row import Operation
from penstock.gateway.core.cluster_types import FanoutRecord, SubscriptionRecord
from penstock.gateway.sns import requests, topic_names
from penstock.gateway.sns.filter_matching import wants, wants_body
from penstock.gateway.sns.filter_policies import read_policy
from penstock.gateway.sns.subscriptions import FILTER, OF_BODY, RAW, SCOPE
from penstock.gateway.sns.topics import CONTENT_DEDUP, find
from penstock.gateway.sqs.batch_requests import batch_answer, check_entries
from penstock.gateway.sqs.call import Answer, AwsCall
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
    call: AwsCall, name: str, record: FanoutRecord, notices: Sequence[requests.Notice]
) -> list[Answer | Fault]:
    """Each message on its own: its id once every queue has it, or why not."""
    results: list[Answer | Fault] = []
    accepted: list[tuple[int, requests.Notice, str]] = []
    for at, notice in enumerate(notices):
        message_id = new_message_id(call.node.random)
        try:
            _check(name, record, notice)
            accepted.append((at, notice, message_id))
            results.append({"MessageId": message_id})
        except Fault as fault:
            results.append(fault)
    fan = _Fan(call, name, record)
    await asyncio.gather(
        *(fan.deliver(subscription, accepted, results) for subscription in record.subscriptions)
    )
    return results


class _Fan:
    """Accepted messages on their way to the queues of one topic."""

    def __init__(self, call: AwsCall, name: str, record: FanoutRecord) -> None:
        self._call = call
        self._name = name
        self._record = record

    async def deliver(
        self,
        subscription: SubscriptionRecord,
        accepted: Sequence[tuple[int, requests.Notice, str]],
        results: list[Answer | Fault],
    ) -> None:
        """Sends a queue what it wants; what fails is noted in its place."""
        topic = self._call.node.image.topics.get(subscription.queue)
        chosen = [item for item in accepted if _is_wanted(subscription, item[1])]
        if topic is None or not chosen:
            return
        queue = self._call.queue_of(topic)
        messages = [self._message(subscription, queue, notice, id_) for _, notice, id_ in chosen]
        try:
            sent = await send_all(self._call, queue, messages)
        except Refused as refused:
            sent = [fault_of(refused)] * len(messages)
        for (at, _, _), outcome in zip(chosen, sent, strict=True):
            so_far = results[at]
            if isinstance(outcome, Fault):
                if outcome.name != no_queue().name:
                    results[at] = outcome
            elif not isinstance(so_far, Fault) and is_fifo(self._name):
                so_far.setdefault("SequenceNumber", outcome.get("SequenceNumber", "0"))

    def _message(
        self, subscription: SubscriptionRecord, queue: SqsQueue, notice: requests.Notice, id_: str
    ) -> MessageEntry:
        is_raw = subscription.attributes.get(RAW, "").lower() == "true"
        dedup_id = notice.message_deduplication_id
        if dedup_id is None and self._record.attributes.get(CONTENT_DEDUP) == "true":
            dedup_id = sha256(notice.message.encode()).hexdigest()
        return MessageEntry(
            message_body=_text(notice) if is_raw else self._envelope(subscription, notice, id_),
            message_attributes=notice.message_attributes if is_raw else {},
            message_group_id=notice.message_group_id,
            message_deduplication_id=dedup_id if queue.is_fifo else None,
        )

    def _envelope(self, subscription: SubscriptionRecord, notice: requests.Notice, id_: str) -> str:
        call, name = self._call, self._name
        at = datetime.fromtimestamp(call.node.clock.now_ms() / 1000, UTC)
        shown: dict[str, object] = {
            "Type": "Notification",
            "MessageId": id_,
            "TopicArn": topic_names.topic_arn(call.region, name),
            "Message": _text(notice),
            "Timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "UnsubscribeURL": f"{call.base_url}/?Action=Unsubscribe&SubscriptionArn="
            + topic_names.subscription_arn(call.region, name, subscription.id),
        }
        if notice.subject is not None:
            shown["Subject"] = notice.subject
        if notice.message_attributes:
            shown["MessageAttributes"] = _shown_attributes(notice)
        return msgspec.json.encode(shown).decode()


def _shown_attributes(notice: requests.Notice) -> Mapping[str, object]:
    return {
        name: {
            "Type": value.data_type,
            "Value": value.binary_value if value.string_value is None else value.string_value,
        }
        for name, value in notice.message_attributes.items()
    }


def _size(notice: requests.Notice) -> int:
    return len(notice.message.encode()) + size_of(notice.message_attributes)


def _check(name: str, record: FanoutRecord, notice: requests.Notice) -> None:
    """Refuses what no queue would be sent."""
    if not notice.message:
        raise Fault("InvalidParameter", "Invalid parameter: Empty message")
    check_text(notice.message, "The message")
    if _size(notice) > MESSAGE_BYTES_MAX:
        raise Fault("InvalidParameter", "Invalid parameter: Message too long")
    subject = notice.subject
    if subject is not None and not (
        0 < len(subject) <= SUBJECT_CHARS_MAX and subject.isprintable()
    ):
        raise Fault("InvalidParameter", "Invalid parameter: Subject")
    headers_of(notice.message_attributes)
    _text(notice)
    for value in (notice.message_group_id, notice.message_deduplication_id):
        if value is not None and not TOKEN.fullmatch(value):
            raise Fault("InvalidParameter", "Invalid parameter: MessageGroupId or deduplication id")
    if not is_fifo(name):
        if notice.message_deduplication_id is not None:
            raise Fault(
                "InvalidParameter", "Invalid parameter: MessageDeduplicationId Reason: not FIFO"
            )
        return
    if notice.message_group_id is None:
        raise Fault("InvalidParameter", "Invalid parameter: The MessageGroupId is required")
    if notice.message_deduplication_id is None and record.attributes.get(CONTENT_DEDUP) != "true":
        raise Fault(
            "InvalidParameter",
            "Invalid parameter: The topic should either have ContentBasedDeduplication enabled or "
            "MessageDeduplicationId provided explicitly",
        )


def _text(notice: requests.Notice) -> str:
    """The message for queues: with MessageStructure json there may be one for each protocol."""
    if notice.message_structure is None:
        return notice.message
    try:
        texts = msgspec.json.decode(notice.message, type=dict[str, str])
    except msgspec.DecodeError as error:
        raise Fault("InvalidParameter", f"Invalid parameter: Message Structure: {error}") from error
    text = texts.get("sqs", texts.get("default"))
    if notice.message_structure != "json" or not text:
        raise Fault("InvalidParameter", "Invalid parameter: Message Structure - No default entry")
    return text


def _is_wanted(subscription: SubscriptionRecord, notice: requests.Notice) -> bool:
    text = subscription.attributes.get(FILTER)
    if not text:
        return True
    policy = read_policy(text)
    if subscription.attributes.get(SCOPE) == OF_BODY:
        return wants_body(policy, _text(notice))
    return wants(policy, notice.message_attributes)
