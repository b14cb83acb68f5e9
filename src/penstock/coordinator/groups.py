"""Groups and their offsets on this node: the shards of `__consumer_offsets`, and what they know.

Gives the machines their settings, the cluster's topics and an engine for patterns. What a group
does with a request is in `penstock.groups`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from penstock.base.ids import TopicId
from penstock.base.machine import Decision, Token
from penstock.cluster.configs import BrokerConfigs
from penstock.cluster.image import Image
from penstock.coordinator.host import Host, Surroundings
from penstock.coordinator.internal_topics import OFFSETS, InternalTopics
from penstock.coordinator.patterns import compile_pattern
from penstock.coordinator.seat import Seat
from penstock.groups.config import Caller, GroupConfig
from penstock.groups.shard import GroupShard

View = Mapping[str, tuple[TopicId, int]]
"""Topic name to topic id and number of partitions."""
MINUTE_MS = 60_000
GROUP_SIZE_MAX = 10_000
"""Kafka's own limit is none; ours keeps one group's records within one batch."""
UPGRADES = ("bidirectional", "upgrade")
DOWNGRADES = ("bidirectional", "downgrade")


def group_config(configs: BrokerConfigs) -> GroupConfig:
    """The machines' settings, by Kafka's config names."""
    policy = (configs.text("group.consumer.migration.policy") or "").lower()
    size_max = min(configs.integer("group.max.size"), configs.integer("group.consumer.max.size"))
    return GroupConfig(
        session_timeout_ms_min=configs.integer("group.min.session.timeout.ms"),
        session_timeout_ms_max=configs.integer("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=configs.integer("group.initial.rebalance.delay.ms"),
        group_size_max=min(size_max, GROUP_SIZE_MAX),
        consumer_session_timeout_ms=configs.integer("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=configs.integer("group.consumer.heartbeat.interval.ms"),
        consumer_assignors=configs.items("group.consumer.assignors"),
        can_upgrade=policy in UPGRADES,
        can_downgrade=policy in DOWNGRADES,
        offset_metadata_bytes_max=configs.integer("offset.metadata.max.bytes"),
        offsets_retention_ms=configs.integer("offsets.retention.minutes") * MINUTE_MS,
        offsets_check_interval_ms=configs.integer("offsets.retention.check.interval.ms"),
        producer_expiration_ms=configs.integer("producer.id.expiration.ms"),
    )


def topics_of(image: Image) -> View:
    return {name: (topic.id, len(topic.partitions)) for name, topic in image.topics.items()}


class GroupCoordinator:
    """This node's part in coordinating groups."""

    def __init__(
        self, around: Surroundings, configs: BrokerConfigs, topics: InternalTopics
    ) -> None:
        self._around = around
        self._configs = configs
        self._topics = topics
        self._view = topics_of(around.follower.image)
        self.host: Host[GroupShard] = Host(
            OFFSETS.name,
            around,
            self._make,
            codec=configs.integer("offsets.topic.compression.codec"),
            chunk_bytes=configs.integer("offsets.load.buffer.size"),
            seated=self._tell_topics,
        )

    async def ensure(self) -> None:
        """Has the internal topic created if it does not exist."""
        await self._topics.ensure(OFFSETS)

    def handle(
        self,
        group_id: str,
        name: str,
        request: Any,
        caller: Caller,
        answer: Callable[[Any], None],
    ) -> tuple[Seat[GroupShard], Token]:
        """Gives a request to its group's shard; see `Seat.call`."""

        def decide(shard: GroupShard, token: Token, now_ms: int) -> Decision:
            return shard.handle(name, request, token, caller, now_ms)

        seat = self.host.seat_of(group_id)
        return seat, seat.call(decide, answer)

    # -- following the cluster --------------------------------------------------------------

    def _make(self) -> GroupShard:
        shard = GroupShard(group_config(self._configs), compile_pattern)
        shard.topics_changed(self._view, self._around.time.now_ms())
        return shard

    def _tell_topics(self, seat: Seat[GroupShard]) -> None:
        # Topics may have changed while the log was read.
        seat.tell(lambda shard, now_ms: shard.topics_changed(self._view, now_ms))

    def follow(self, before: Image, after: Image) -> None:
        """Called at every change of the image."""
        if before.topics is after.topics:
            return
        view = topics_of(after)
        if view == self._view:
            return
        self._view = view
        for seat, _ in self.host.active():
            self._tell_topics(seat)

    # -- figures ----------------------------------------------------------------------------

    @property
    def group_count(self) -> int:
        """Groups that have or had members; those that only committed are not counted."""
        return sum(len(shard.groups) for _, shard in self.host.active())
