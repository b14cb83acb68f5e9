"""Delivery rules of a share group for a topic, from the configs of both.

The group sets the lease duration, the number of deliveries and the dead-letter topic; the topic
sets the order of delivery. Unset values are the broker's.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.cluster.configs.config_types import Value, parse, reset_duration_ms
from penstock.cluster.configs.effective_configs import BrokerConfigs, describe_group, topic_value
from penstock.cluster.metadata.image import INTERNAL_TOPICS, Image, TopicImage
from penstock.state.queues.policy import Order, QueuePolicy

DEAD_LETTER_SUFFIX = ".dlq"
DEAD_LETTERS = "__dead_letters"
"""Share group in which redriven and purged dead letters are finished; see `inspection`."""
TOPIC_DEAD_LETTERS, GROUP_DEAD_LETTERS = (
    "queue.dead.letter.topic",
    "errors.deadletterqueue.topic.name",
)
DEAD_LETTER_CONFIGS = (TOPIC_DEAD_LETTERS, GROUP_DEAD_LETTERS)
"""Configs of a topic and of a group that name the topic for their dead letters."""
DEDUP_SCOPE, ATTRIBUTES = "queue.dedup.scope", "sqs.attributes"
GROUPS_KEPT = '"DeduplicationScope":"messageGroup"'
"""Deduplication by key in `sqs.attributes` of queues from when that had no effect: a JSON object
without spaces, in whose texts quotes are escaped."""
READ_COMMITTED = "read_committed"
BACKOFF_MS = 1_000
"""Default backoff in ms for consumers that do not choose another one."""
DELIVERIES_MAX = 32_767
"""Kafka's protocol counts no further."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """All configs of one queue."""

    policy: QueuePolicy
    committed_only: bool
    reset: str
    """Start of a group without state: earliest, latest or by_duration:..."""
    dead_letter_topic: str
    dedup_window_ms: int
    dedups_by_key: bool
    """True if a deduplication id counts only among records of one key."""

    @property
    def reset_back_ms(self) -> int | None:
        """Duration by which the start lies in the past, for by_duration resets."""
        return reset_duration_ms(self.reset)


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Lease settings for a group's members, whatever the topic."""

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
    # A topic's own setting overrides the group's.
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
        # Records of a dead-letter topic are not dead-lettered again.
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
    """Returns the delivery limit; a dead letter is never given up: it has no other target."""
    return DELIVERIES_MAX if is_dead_letter_topic else read.integer("share.delivery.count.limit")


def lease_settings_of(image: Image, broker: BrokerConfigs, group: str) -> LeaseSettings:
    read = _Reader(image.group_configs.get(group, {}), {}, broker)
    return LeaseSettings(
        lock_ms=read.integer("share.record.lock.duration.ms"),
        can_renew=bool(read.of_group("share.renew.acknowledge.enable")),
    )
