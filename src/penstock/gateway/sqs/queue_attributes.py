"""A queue's attributes, and the topic configs that they are kept in.

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

So they are as durable as the topic and go with it, Kafka's tools show and change them, and a topic
that Kafka clients made has them too, with defaults. Attributes without a meaning here (Policy,
KMS) are kept as they were given in `sqs.attributes`, and shown. Values are checked on their way in
(`changes_for`); limits are those of SQS.
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
from penstock.gateway.core.configs import topic_config
from penstock.gateway.core.queues import GROUP, queue_group
from penstock.gateway.sqs.errors import Fault, invalid
from penstock.gateway.sqs.queue_names import arn_of, is_fifo, queue_of_arn

RECEIVES_MAX = 1_000
"""The largest maxReceiveCount."""
UNLIMITED_RECEIVES = DELIVERIES_MAX
"""Of a queue without RedrivePolicy."""
ATTRIBUTE_BYTES_MAX = 65_536

LIMIT, LETTERS = "queue.delivery.count.limit", "queue.dead.letter.topic"
BY_CONTENT, ORDER = "sqs.dedup.by.content", "queue.order"
KEPT, TAGS = "sqs.attributes", "sqs.tags"
CREATED, MODIFIED = "CreatedTimestamp", "LastModifiedTimestamp"


@dataclass(frozen=True, slots=True)
class NumberAttribute:
    """An attribute that is a number, and the config that it is kept in."""

    config: str
    low: int
    high: int
    scale: int = 1
    """How much one is in the config."""


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
"""And what a queue of another type says to them, in Amazon's words."""
OUR_GROUP = "PenstockGroup"
SETTABLE = frozenset(
    {*NUMBERS, *WORDS, *TEXTS, *FIFO_ONLY, "RedrivePolicy", "FifoQueue", OUR_GROUP}
)
BOOLEAN_NAMES = ("ContentBasedDeduplication", "FifoQueue", "SqsManagedSseEnabled")
CREATION = {
    "max.message.bytes": str(17 << 16),
    "retention.ms": "345600000",
    LIMIT: str(UNLIMITED_RECEIVES),
}
"""What a queue has from its creation on, unless that says otherwise: the largest message with room
for its headers, four days, no limit of deliveries."""


class RedrivePolicy(msgspec.Struct, frozen=True):
    deadLetterTargetArn: str
    maxReceiveCount: int


class RedriveAllowPolicy(msgspec.Struct, frozen=True):
    redrivePermission: str = "allowAll"
    sourceQueueArns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SqsQueue:
    """A topic, seen as a queue."""

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
        """The share group that receives."""
        return queue_group(self.topic, self.broker)

    @property
    def dedups_by_content(self) -> bool:
        return self._config(BY_CONTENT) is True

    @property
    def dedup_scope(self) -> str:
        """Among which messages a deduplication id counts."""
        if DEDUP_SCOPE not in self.topic.configs and SCOPE in self.kept:
            return self.kept[SCOPE]  # From when it was only kept.
        return next(name for name, value in SCOPES.items() if value == self._config(DEDUP_SCOPE))

    @property
    def dead_letter_queue(self) -> str | None:
        return self._text(LETTERS) or None

    def number(self, attribute: str) -> int:
        number = NUMBERS[attribute]
        value = self._config(number.config)
        assert isinstance(value, int), attribute
        # Kafka's limits are wider: forever, say, is shown as the longest that SQS has.
        return min(value // number.scale, number.high) if value >= 0 else number.high

    @property
    def kept(self) -> dict[str, str]:
        """Attributes that are kept as they were given."""
        return _table(self._text(KEPT))

    @property
    def tags(self) -> dict[str, str]:
        return _table(self._text(TAGS))

    @property
    def redrive_allow_policy(self) -> RedriveAllowPolicy:
        text = self.kept.get("RedriveAllowPolicy")
        return _read(RedriveAllowPolicy, "RedriveAllowPolicy", text or "{}")

    def redrive_policy(self, region: str) -> RedrivePolicy | None:
        target = self.dead_letter_queue
        if target is None:
            return None
        limit = self._config(LIMIT)
        assert isinstance(limit, int)
        return RedrivePolicy(arn_of(region, target), limit)

    def describe(self, region: str) -> dict[str, str]:
        """The attributes that do not depend on what is in the queue."""
        shown = {name: str(self.number(name)) for name in NUMBERS}
        shown["QueueArn"] = arn_of(region, self.name)
        shown |= {CREATED: "0", MODIFIED: "0", "SqsManagedSseEnabled": "false"} | self.kept
        shown[OUR_GROUP] = self.group
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
    """As they are kept: the words for true and false may come in any case."""
    return {
        name: text.lower() if name in BOOLEAN_NAMES and text.lower() in BOOLEANS else text
        for name, text in attributes.items()
    }


def changes_for(queue: str, attributes: Mapping[str, str]) -> dict[str, str | None]:
    """The configs that attributes are kept in, None to be unset; raises Fault.

    Those of `TEXTS` and `WORDS` are not here: see `kept_after`.
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
        elif name == OUR_GROUP:
            changes[GROUP] = text or None
        elif name == SCOPE:
            changes[DEDUP_SCOPE] = SCOPES[_word(name, text, tuple(SCOPES))]
        elif name in WORDS:
            _word(name, text, WORDS[name])
        elif name == "RedriveAllowPolicy":
            _check_allowing(text)
    return changes


def kept_after(present: Mapping[str, str], attributes: Mapping[str, str], now_s: int) -> str:
    """The text of `sqs.attributes` after a change; empty values are removed."""
    kept = {CREATED: str(now_s)} | dict(present) | {MODIFIED: str(now_s)}
    kept |= {name: text for name, text in attributes.items() if name in (*WORDS, *TEXTS)}
    if SCOPE in attributes:
        kept.pop(SCOPE, None)  # A config of its own has it from now on.
    return write_table({name: text for name, text in kept.items() if text})


def is_same(name: str, given: str, present: str | None) -> bool:
    """Whether an attribute that was given is what the queue has."""
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
        return {LETTERS: None, LIMIT: str(UNLIMITED_RECEIVES)}
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
    return {LETTERS: target, LIMIT: str(policy.maxReceiveCount)}


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
    # A number may be given as text.
    if isinstance(decoded, dict) and "maxReceiveCount" in decoded:
        decoded["maxReceiveCount"] = str(decoded["maxReceiveCount"])
    return decoded


def _table(text: str) -> dict[str, str]:
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError:
        return {}  # Somebody wrote it by hand; nothing depends on it.


def _bad(name: str, text: str) -> Fault:
    return Fault("InvalidAttributeValue", f"Invalid value for the parameter {name}: {text[:200]}.")
