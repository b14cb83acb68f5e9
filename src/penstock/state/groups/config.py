"""Inputs of the group state machines: settings, the caller, the cluster's topics.

Everything here is immutable. The host builds a `GroupConfig` once, a `GroupCaller` per request and
a `TopicCatalogue` whenever the cluster's topics change.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.base.ids import NO_TOPIC_ID, TopicId


class ConsumerGroupConfig(NamedTuple):
    """Configs of one consumer group; the broker's values fill in what the group does not set."""

    session_timeout_ms: int = 45_000
    """consumer.session.timeout.ms."""
    heartbeat_interval_ms: int = 5_000
    """consumer.heartbeat.interval.ms."""
    assignment_interval_ms: int = 0
    """consumer.assignment.interval.ms (KIP-1263)."""


def default_consumer_config(group_id: str) -> ConsumerGroupConfig:
    return ConsumerGroupConfig()


class ShareGroupConfig(NamedTuple):
    """Configs of one share group; the broker's values fill in what the group does not set."""

    session_timeout_ms: int = 45_000
    """share.session.timeout.ms."""
    heartbeat_interval_ms: int = 5_000
    """share.heartbeat.interval.ms."""


def default_share_config(group_id: str) -> ShareGroupConfig:
    return ShareGroupConfig()


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Kafka's group and offset settings, named by their meaning."""

    session_timeout_ms_min: int = 6_000
    """group.min.session.timeout.ms: lower bound for classic members."""
    session_timeout_ms_max: int = 1_800_000
    """group.max.session.timeout.ms: upper bound for classic members."""
    initial_rebalance_delay_ms: int = 3_000
    """group.initial.rebalance.delay.ms: wait of an empty classic group for more members."""
    new_member_join_timeout_ms: int = 300_000
    """A member that has not finished its first join is removed after this time."""
    group_size_max: int = 10_000
    """group.max.size and group.consumer.max.size: maximum members of one group."""
    member_metadata_bytes_max: int = 65_536
    """Maximum bytes of protocol names and metadata of one classic member."""
    subscribed_topics_max: int = 10_000
    """Maximum topic names that one member may subscribe to."""
    groups_max: int = 1_000_000
    """Maximum groups in one shard, including those that only have committed offsets."""
    consumer_config_of: Callable[[str], ConsumerGroupConfig] = default_consumer_config
    """Returns the configs of a group; they may change at any time."""
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """group.consumer.assignors; the first is the default."""
    can_upgrade: bool = True
    """True while group.consumer.migration.policy is bidirectional or upgrade."""
    can_downgrade: bool = True
    """True while group.consumer.migration.policy is bidirectional or downgrade."""
    offset_metadata_bytes_max: int = 4_096
    """offset.metadata.max.bytes."""
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    """offsets.retention.minutes."""
    offsets_check_interval_ms: int = 600_000
    """offsets.retention.check.interval.ms."""
    producer_expiration_ms: int = 24 * 3_600_000
    """producer.id.expiration.ms: retention of a producer's last epoch."""
    share_group_size_max: int = 200
    """group.share.max.size: maximum members of one share group."""
    share_config_of: Callable[[str], ShareGroupConfig] = default_share_config
    """Returns the configs of a group; they may change at any time."""


class GroupCaller(NamedTuple):
    """The caller's identity, its request version and a fresh random id in case one is needed."""

    client_id: str
    client_host: str
    api_version: int
    fresh_id: str
    principal: str = ""


@dataclass(frozen=True, slots=True)
class TopicCatalogue:
    """The cluster's topics: name to (id, number of partitions), and id to name."""

    by_name: Mapping[str, tuple[TopicId, int]] = field(default_factory=dict)
    names: Mapping[TopicId, str] = field(default_factory=dict)

    @classmethod
    def of(cls, view: Mapping[str, tuple[TopicId, int]]) -> "TopicCatalogue":
        return cls(view, {topic_id: name for name, (topic_id, _) in view.items()})

    def id_of(self, name: str) -> TopicId:
        found = self.by_name.get(name)
        return NO_TOPIC_ID if found is None else found[0]
