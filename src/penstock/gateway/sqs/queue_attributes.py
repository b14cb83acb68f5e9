"""Queue attributes and the topic configs that store them.

    VisibilityTimeout               sqs.visibility.timeout.seconds
    DelaySeconds                    sqs.delay.seconds
    ReceiveMessageWaitTimeSeconds   sqs.receive.wait.seconds
    MaximumMessageSize              sqs.message.bytes.max
    MessageRetentionPeriod          retention.ms
    RedrivePolicy                   queue.delivery.count.limit, queue.dead.letter.topic
    FifoQueue                       queue.order=key, and the name
    ContentBasedDeduplication       sqs.dedup.by.content
    DeduplicationScope              queue.dedup.scope
    PenstockGroup (ours)            sqs.group

So attributes are as durable as the topic and are deleted with it, Kafka's tools show and change
them, and a topic created by a Kafka client has them, too, with defaults. Attributes without effect
here (Policy, KMS) are stored unchanged in `sqs.attributes`, and returned. `changes_for` checks
values when they are set; limits are those of SQS.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from penstock.gateway.core.cluster_types import (
    DEDUP_SCOPE,
    DELIVERIES_MAX,
    BrokerConfigs,
    TopicImage,
    Value,
)
from penstock.gateway.core.queues import GROUP, queue_group
from penstock.gateway.core.topics import topic_config
from penstock.gateway.sqs.errors import Fault, invalid
from penstock.gateway.sqs.queue_names import arn_of, is_fifo, queue_of_arn

RECEIVES_MAX = 1_000
"""Maximum maxReceiveCount."""
UNLIMITED_RECEIVES = DELIVERIES_MAX
"""Delivery limit of a queue without RedrivePolicy."""
ATTRIBUTE_BYTES_MAX = 65_536

LIMIT, DEAD_LETTER_TOPIC = "queue.delivery.count.limit", "queue.dead.letter.topic"
BY_CONTENT, ORDER = "sqs.dedup.by.content", "queue.order"
STORED, TAGS = "sqs.attributes", "sqs.tags"
CREATED, MODIFIED = "CreatedTimestamp", "LastModifiedTimestamp"


@dataclass(frozen=True, slots=True)
class NumberAttribute:
    """Numeric attribute and the config that stores it."""

    config: str
    low: int
    high: int
    scale: int = 1
    """Factor from the attribute's unit to the config's."""


NUMBERS = {
    "DelaySeconds": NumberAttribute("sqs.delay.seconds", 0, 900),
    "MaximumMessageSize": NumberAttribute("sqs.message.bytes.max", 1_024, 1_048_576),
    "MessageRetentionPeriod": NumberAttribute("retention.ms", 60, 1_209_600, 1_000),
    "ReceiveMessageWaitTimeSeconds": NumberAttribute("sqs.receive.wait.seconds", 0, 20),
    "VisibilityTimeout": NumberAttribute("sqs.visibility.timeout.seconds", 0, 43_200),
}
BOOLEANS = ("true", "false")
SCOPE = "DeduplicationScope"
SCOPES = {"messageGroup": "key", "queue": "partition"}
WORDS = {
    "FifoThroughputLimit": ("perMessageGroupId", "perQueue"),
    "SqsManagedSseEnabled": BOOLEANS,
}
TEXTS = ("KmsDataKeyReusePeriodSeconds", "KmsMasterKeyId", "Policy", "RedriveAllowPolicy")
FIFO_ONLY = {
    "ContentBasedDeduplication": "Unknown Attribute ContentBasedDeduplication.",
    "FifoQueue": "Unknown Attribute FifoQueue.",
    "FifoThroughputLimit": "You can specify the FifoThroughputLimit only when FifoQueue is set to "
    "true.",
    SCOPE: "You can specify the DeduplicationScope only when FifoQueue is set to true.",
}
"""Attributes of FIFO queues, with Amazon's error message for other queues."""
GROUP_ATTRIBUTE = "PenstockGroup"
SETTABLE = frozenset(
    {*NUMBERS, *WORDS, *TEXTS, *FIFO_ONLY, "RedrivePolicy", "FifoQueue", GROUP_ATTRIBUTE}
)
BOOLEAN_NAMES = ("ContentBasedDeduplication", "FifoQueue", "SqsManagedSseEnabled")
CREATION = {
    "max.message.bytes": str(17 << 16),
    "retention.ms": "345600000",
    LIMIT: str(UNLIMITED_RECEIVES),
}
"""Default configs of a new queue: the largest message plus space for its headers, four days of
retention, no delivery limit."""


class RedrivePolicy(msgspec.Struct, frozen=True):
    deadLetterTargetArn: str
    maxReceiveCount: int


class RedriveAllowPolicy(msgspec.Struct, frozen=True):
    redrivePermission: str = "allowAll"
    sourceQueueArns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SqsQueue:
    """Topic as an SQS queue."""

    topic: TopicImage
    broker: BrokerConfigs

    @property
    def name(self) -> str:
        return self.topic.name

    @property
    def is_fifo(self) -> bool:
        return is_fifo(self.topic.name)

    @property
    def group(self) -> str:
        """Share group that receives from the queue."""
        return queue_group(self.topic, self.broker)

    @property
    def dedups_by_content(self) -> bool:
        return self._config(BY_CONTENT) is True

    @property
    def dedup_scope(self) -> str:
        """Scope in which deduplication ids must be unique."""
        if DEDUP_SCOPE not in self.topic.configs and SCOPE in self.stored:
            return self.stored[SCOPE]  # Set by a version that only stored it.
        return next(name for name, value in SCOPES.items() if value == self._config(DEDUP_SCOPE))

    @property
    def dead_letter_queue(self) -> str | None:
        return self._text(DEAD_LETTER_TOPIC) or None

    def number(self, attribute: str) -> int:
        number = NUMBERS[attribute]
        value = self._config(number.config)
        assert isinstance(value, int), attribute
        # Kafka's limits are wider: unlimited is returned as SQS's maximum.
        return min(value // number.scale, number.high) if value >= 0 else number.high

    @property
    def stored(self) -> dict[str, str]:
        """Attributes stored unchanged."""
        return _table(self._text(STORED))

    @property
    def tags(self) -> dict[str, str]:
        return _table(self._text(TAGS))

    @property
    def redrive_allow_policy(self) -> RedriveAllowPolicy:
        text = self.stored.get("RedriveAllowPolicy")
        return _read(RedriveAllowPolicy, "RedriveAllowPolicy", text or "{}")

    def redrive_policy(self, region: str) -> RedrivePolicy | None:
        target = self.dead_letter_queue
        if target is None:
            return None
        limit = self._config(LIMIT)
        assert isinstance(limit, int)
        return RedrivePolicy(arn_of(region, target), limit)

    def describe(self, region: str) -> dict[str, str]:
        """Returns the attributes that do not depend on the queue's messages."""
        shown = {name: str(self.number(name)) for name in NUMBERS}
        shown["QueueArn"] = arn_of(region, self.name)
        shown |= {CREATED: "0", MODIFIED: "0", "SqsManagedSseEnabled": "false"} | self.stored
        shown[GROUP_ATTRIBUTE] = self.group
        policy = self.redrive_policy(region)
        if policy is not None:
            shown["RedrivePolicy"] = msgspec.json.encode(policy).decode()
        if self.is_fifo:
            shown["FifoQueue"] = "true"
            shown["ContentBasedDeduplication"] = "true" if self.dedups_by_content else "false"
            shown[SCOPE] = self.dedup_scope
            shown.setdefault("FifoThroughputLimit", "perQueue")
        return shown

    def _config(self, name: str) -> Value:
        return topic_config(self.topic, name, self.broker)

    def _text(self, name: str) -> str:
        value = self._config(name)
        assert isinstance(value, str), name
        return value


# -- changing ---------------------------------------------------------------------------------


def plain(attributes: Mapping[str, str]) -> dict[str, str]:
    """Normalizes attributes: booleans may come in any case."""
    return {
        name: text.lower() if name in BOOLEAN_NAMES and text.lower() in BOOLEANS else text
        for name, text in attributes.items()
    }


def changes_for(queue: str, attributes: Mapping[str, str]) -> dict[str, str | None]:
    """Returns the config changes for attributes, None for configs to unset; raises Fault.

    `stored_after` handles those of `TEXTS` and `WORDS`.
    """
    changes: dict[str, str | None] = {}
    for name, text in attributes.items():
        if name not in SETTABLE:
            raise Fault("InvalidAttributeName", f"Unknown Attribute {name}.")
        if len(text.encode()) > ATTRIBUTE_BYTES_MAX:
            raise _bad(name, text)
        if name in FIFO_ONLY and not is_fifo(queue):
            raise Fault("InvalidAttributeName", FIFO_ONLY[name])
        if name in NUMBERS:
            changes[NUMBERS[name].config] = _number(name, text)
        elif name == "RedrivePolicy":
            changes |= _redrive(queue, text)
        elif name == "ContentBasedDeduplication":
            changes[BY_CONTENT] = _word(name, text, BOOLEANS)
        elif name == "FifoQueue":
            if _word(name, text, BOOLEANS) != "true":
                raise Fault(
                    "InvalidAttributeValue",
                    "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is "
                    "not supported.",
                )
        elif name == GROUP_ATTRIBUTE:
            changes[GROUP] = text or None
        elif name == SCOPE:
            changes[DEDUP_SCOPE] = SCOPES[_word(name, text, tuple(SCOPES))]
        elif name in WORDS:
            _word(name, text, WORDS[name])
        elif name == "RedriveAllowPolicy":
            _check_allowing(text)
    return changes


def stored_after(present: Mapping[str, str], attributes: Mapping[str, str], now_s: int) -> str:
    """Returns the value of `sqs.attributes` after a change; empty values are removed."""
    stored = {CREATED: str(now_s)} | dict(present) | {MODIFIED: str(now_s)}
    stored |= {name: text for name, text in attributes.items() if name in (*WORDS, *TEXTS)}
    if SCOPE in attributes:
        stored.pop(SCOPE, None)  # Stored in its own config from now on.
    return write_table({name: text for name, text in stored.items() if text})


def is_same(name: str, given: str, present: str | None) -> bool:
    """True if a given attribute equals the queue's."""
    if name in NUMBERS and present is not None:
        return given.strip().lstrip("0") == present.lstrip("0")
    if name in ("RedrivePolicy", "RedriveAllowPolicy", "Policy"):
        return _json(given) == _json(present or "")
    return given == (present or "")


def write_table(table: Mapping[str, str]) -> str:
    return msgspec.json.encode(dict(sorted(table.items()))).decode() if table else ""


def _number(name: str, text: str) -> str:
    number, bare = NUMBERS[name], text.strip()
    if not (bare.isascii() and bare.isdecimal() and len(bare) <= 9):
        raise _bad(name, text)
    if not number.low <= int(bare) <= number.high:
        raise _bad(name, text)
    return str(int(bare) * number.scale)


def _word(name: str, text: str, words: tuple[str, ...]) -> str:
    if text not in words:
        raise _bad(name, text)
    return text


def _redrive(queue: str, text: str) -> dict[str, str | None]:
    if not text:
        return {DEAD_LETTER_TOPIC: None, LIMIT: str(UNLIMITED_RECEIVES)}
    policy = _read(RedrivePolicy, "RedrivePolicy", text)
    target = queue_of_arn(policy.deadLetterTargetArn, "RedrivePolicy")
    if not 1 <= policy.maxReceiveCount <= RECEIVES_MAX:
        raise invalid(
            "RedrivePolicy",
            text,
            "Invalid value for maxReceiveCount: "
            f"{policy.maxReceiveCount}, valid values are from 1 to {RECEIVES_MAX} both inclusive.",
        )
    if target == queue:
        raise _bad("RedrivePolicy", text)
    if is_fifo(target) != is_fifo(queue):
        raise Fault(
            "InvalidParameterValue",
            "The dead-letter queue of a FIFO queue must be a FIFO queue, and only of one.",
        )
    return {DEAD_LETTER_TOPIC: target, LIMIT: str(policy.maxReceiveCount)}


def _check_allowing(text: str) -> None:
    policy = _read(RedriveAllowPolicy, "RedriveAllowPolicy", text or "{}")
    if policy.redrivePermission not in ("allowAll", "denyAll", "byQueue"):
        raise _bad("RedriveAllowPolicy", text)
    if (policy.redrivePermission == "byQueue") != bool(policy.sourceQueueArns):
        raise _bad("RedriveAllowPolicy", text)


PolicyT = TypeVar("PolicyT", RedrivePolicy, RedriveAllowPolicy)


def _read(kind: type[PolicyT], name: str, text: str) -> PolicyT:
    try:
        return msgspec.convert(msgspec.json.decode(text), kind, strict=False)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _bad(name, text) from error


def _json(text: str) -> object:
    try:
        decoded: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    # Numbers may come as strings.
    if isinstance(decoded, dict) and "maxReceiveCount" in decoded:
        decoded["maxReceiveCount"] = str(decoded["maxReceiveCount"])
    return decoded


def _table(text: str) -> dict[str, str]:
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError:
        return {}  # Set by other means than this endpoint; nothing depends on it.


def _bad(name: str, text: str) -> Fault:
    return Fault("InvalidAttributeValue", f"Invalid value for the parameter {name}: {text[:200]}.")
