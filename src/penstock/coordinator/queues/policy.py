"""How a share group treats a topic's records, read from the configs of both.

The group says how long a lease is, how often a record is tried and where it goes after that; the
topic in which order its records are delivered. Values that are not set are the broker's.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.cluster.configs.config_types import Value, parse, reset_duration_ms
from penstock.cluster.configs.configs import BrokerConfigs, describe_group, topic_value
from penstock.cluster.metadata.image import INTERNAL_TOPICS, Image, TopicImage
from penstock.state.queues.policy import Order, QueuePolicy

DEAD_LETTER_SUFFIX = ".dlq"
DEAD_LETTERS = "__dead_letters"
"""The share group in which letters are finished that were redriven or purged; see `queue_care`."""
TOPIC_DEAD_LETTERS, GROUP_DEAD_LETTERS = (
    "queue.dead.letter.topic",
    "errors.deadletterqueue.topic.name",
)
DEAD_LETTER_CONFIGS = (TOPIC_DEAD_LETTERS, GROUP_DEAD_LETTERS)
"""Of a topic and of a group: the name of the topic that their dead letters go to."""
DEDUP_SCOPE, ATTRIBUTES = "queue.dedup.scope", "sqs.attributes"
GROUPS_KEPT = '"DeduplicationScope":"messageGroup"'
"""Deduplication by key in `sqs.attributes` of queues from when that had no effect: a JSON object
without spaces, in whose texts quotes are escaped."""
READ_COMMITTED = "read_committed"
BACKOFF_MS = 1_000
"""The backoff where none is configured, for those who do not ask for another try at once."""
DELIVERIES_MAX = 32_767
"""Kafka's protocol counts no further."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Everything that configs say about one queue."""

    policy: QueuePolicy
    committed_only: bool
    reset: str
    """Where a group begins that has no state: earliest, latest or by_duration:..."""
    dead_letter_topic: str
    dedup_window_ms: int
    dedups_by_key: bool
    """True if a deduplication id counts only among records of one key."""

    @property
    def reset_back_ms(self) -> int | None:
        """How far back it begins, where that is said by a duration."""
        return reset_duration_ms(self.reset)


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """What a group's members are told about leases, whatever the topic."""

    lock_ms: int
    can_renew: bool


@dataclass(frozen=True, slots=True)
class _Reader:
    group: Mapping[str, str]
    topic: Mapping[str, str]
    broker: BrokerConfigs

    def of_group(self, name: str) -> Value:
        described = describe_group(name, self.group, self.broker)
        return parse(described.config, described.text)

    def of_topic(self, name: str) -> Value:
        return topic_value(name, self.topic, self.broker)

    def integer(self, name: str) -> int:
        value = self.of_group(name)
        assert isinstance(value, int), name
        return value

    def text(self, name: str) -> str:
        value = self.of_group(name)
        assert isinstance(value, str), name
        return value


def settings_of(
    image: Image, broker: BrokerConfigs, group: str, topic: TopicImage
) -> QueueSettings:
    read = _Reader(image.group_configs.get(group, {}), topic.configs, broker)
    is_dead_letter_topic = topic.name.endswith(DEAD_LETTER_SUFFIX) or group == DEAD_LETTERS
    window_ms = read.of_topic("queue.dedup.window.ms")
    assert isinstance(window_ms, int)
    # What a topic says of its own records goes before what the group says of all it reads.
    dead_letters_to = str(read.of_topic(TOPIC_DEAD_LETTERS) or "") or read.text(GROUP_DEAD_LETTERS)
    own_limit = read.of_topic("queue.delivery.count.limit")
    assert isinstance(own_limit, int)
    if dead_letters_to in ("", topic.name) or dead_letters_to in INTERNAL_TOPICS:
        dead_letters_to = topic.name + DEAD_LETTER_SUFFIX
    backoff_ms = read.integer("share.retry.backoff.ms")
    policy = QueuePolicy(
        order=Order(read.of_topic("queue.order")),
        lock_ms=read.integer("share.record.lock.duration.ms"),
        deliveries_max=own_limit or _limit(read, is_dead_letter_topic),
        backoff_base_ms=BACKOFF_MS if backoff_ms < 0 else backoff_ms,
        backs_off_always=backoff_ms >= 0,
        backoff_cap_ms=read.integer("share.retry.backoff.max.ms"),
        locks_max=read.integer("share.partition.max.record.locks"),
        # What comes back from the dead letters has nowhere else to go.
        dead_letters=bool(read.of_group("errors.deadletterqueue.enable"))
        and not is_dead_letter_topic,
        dead_letter_expired=bool(read.of_topic("queue.expired.dead.letter")),
    )
    return QueueSettings(
        policy=policy,
        committed_only=group == DEAD_LETTERS
        or read.text("share.isolation.level") == READ_COMMITTED,
        reset="earliest" if group == DEAD_LETTERS else read.text("share.auto.offset.reset"),
        dead_letter_topic=dead_letters_to,
        dedup_window_ms=window_ms,
        dedups_by_key=_dedups_by_key(read),
    )


def _dedups_by_key(read: _Reader) -> bool:
    if DEDUP_SCOPE not in read.topic and GROUPS_KEPT in read.topic.get(ATTRIBUTES, ""):
        return True
    return read.of_topic(DEDUP_SCOPE) == "key"


def _limit(read: _Reader, is_dead_letter_topic: bool) -> int:
    """A letter is not given up for being looked at: there is nowhere else for it to go."""
    return DELIVERIES_MAX if is_dead_letter_topic else read.integer("share.delivery.count.limit")


def lease_settings_of(image: Image, broker: BrokerConfigs, group: str) -> LeaseSettings:
    read = _Reader(image.group_configs.get(group, {}), {}, broker)
    return LeaseSettings(
        lock_ms=read.integer("share.record.lock.duration.ms"),
        can_renew=bool(read.of_group("share.renew.acknowledge.enable")),
    )
