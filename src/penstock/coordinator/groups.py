"""Groups and their offsets on this node: the shards of `__consumer_offsets`, and their settings.

Provides the state machines with settings, the cluster's topics and an engine for patterns. The
handling of requests is in `penstock.state.groups`.

Clients' regular expressions, evaluated by RE2: in linear time, whatever the pattern. For KIP-848
subscriptions and the filter of ListTransactions. A pattern matches a whole name.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import re2  # type: ignore[import-untyped]

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.base.state_machine import Decision, Token
from penstock.cluster.configs.effective_configs import BrokerConfigs, describe_group
from penstock.cluster.metadata.image import Image
from penstock.coordinator.runtime.internal_topics import OFFSETS, InternalTopics
from penstock.coordinator.runtime.shard_host import HostContext, ShardHost
from penstock.coordinator.runtime.shard_runtime import ShardRuntime
from penstock.state.groups.config import (
    ConsumerGroupConfig,
    GroupCaller,
    GroupConfig,
    ShareGroupConfig,
    default_consumer_config,
    default_share_config,
)
from penstock.state.groups.shard import GroupShard
from penstock.state.groups.topic_regex import MaySee, see_everything

PATTERN_MEMORY_BYTES_MAX = 1 << 20
REMEMBERED_MAX = 1_000

_options = re2.Options()
_options.log_errors = False
_options.max_mem = PATTERN_MEMORY_BYTES_MAX


@lru_cache(maxsize=REMEMBERED_MAX)
def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Returns a full-match test; raises Refused(INVALID_REGULAR_EXPRESSION)."""
    try:
        compiled = re2.compile(pattern, _options)
    except re2.error as error:
        reason = error.args[0] if error.args else "it cannot be used"
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        raise Refused(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"the pattern {pattern!r} is not RE2: {reason}"
        ) from None
    return lambda name: compiled.fullmatch(name) is not None


View = Mapping[str, tuple[TopicId, int]]
"""Topic name to topic id and number of partitions."""
MINUTE_MS = 60_000
GROUP_SIZE_MAX = 10_000
"""Kafka has no limit; this one keeps one group's records within one batch."""
SETTINGS_MAX = 100_000
"""Groups whose settings are cached."""
UPGRADES = ("bidirectional", "upgrade")
DOWNGRADES = ("bidirectional", "downgrade")


class GroupSettings(NamedTuple):
    """Settings of one group from its configs, for either group type."""

    consumer: ConsumerGroupConfig
    share: ShareGroupConfig


def group_config(
    configs: BrokerConfigs,
    consumer_config_of: Callable[[str], ConsumerGroupConfig] = default_consumer_config,
    share_config_of: Callable[[str], ShareGroupConfig] = default_share_config,
) -> GroupConfig:
    """Returns the settings of the state machines, by Kafka's config names."""
    policy = (configs.text("group.consumer.migration.policy") or "").lower()
    size_max = min(configs.integer("group.max.size"), configs.integer("group.consumer.max.size"))
    return GroupConfig(
        session_timeout_ms_min=configs.integer("group.min.session.timeout.ms"),
        session_timeout_ms_max=configs.integer("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=configs.integer("group.initial.rebalance.delay.ms"),
        group_size_max=min(size_max, GROUP_SIZE_MAX),
        consumer_config_of=consumer_config_of,
        consumer_assignors=configs.items("group.consumer.assignors"),
        can_upgrade=policy in UPGRADES,
        can_downgrade=policy in DOWNGRADES,
        offset_metadata_bytes_max=configs.integer("offset.metadata.max.bytes"),
        offsets_retention_ms=configs.integer("offsets.retention.minutes") * MINUTE_MS,
        offsets_check_interval_ms=configs.integer("offsets.retention.check.interval.ms"),
        producer_expiration_ms=configs.integer("producer.id.expiration.ms"),
        share_group_size_max=configs.integer("group.share.max.size"),
        share_config_of=share_config_of,
    )


def topics_of(image: Image) -> View:
    return {name: (topic.id, len(topic.partitions)) for name, topic in image.topics.items()}


class GroupCoordinator:
    """Coordinator of this node's groups."""

    def __init__(
        self,
        around: HostContext,
        configs: BrokerConfigs,
        topics: InternalTopics,
        may_see: MaySee = see_everything,
    ) -> None:
        """`may_see`: True if a principal's pattern may match a topic."""
        self._around = around
        self._may_see = may_see
        self._configs = configs
        self._topics = topics
        self._view = topics_of(around.watcher.image)
        self._settings: dict[str, GroupSettings] = {}
        self._settings_are_of: tuple[object, int] | None = None
        self.host: ShardHost[GroupShard] = ShardHost(
            OFFSETS.name,
            around,
            self._make,
            codec=configs.integer("offsets.topic.compression.codec"),
            chunk_bytes=configs.integer("offsets.load.buffer.size"),
            activated=self._tell_topics,
        )

    async def ensure(self) -> None:
        """Creates the internal topic if it does not exist."""
        await self._topics.ensure(OFFSETS)

    def handle(
        self,
        group_id: str,
        name: str,
        request: Any,
        caller: GroupCaller,
        answer: Callable[[Any], None],
    ) -> tuple[ShardRuntime[GroupShard], Token]:
        """Passes a request to its group's shard; see `ShardRuntime.call`."""

        def decide(shard: GroupShard, token: Token, now_ms: int) -> Decision:
            return shard.handle(name, request, token, caller, now_ms)

        runtime = self.host.runtime_of(group_id)
        return runtime, runtime.call(decide, answer)

    # -- following the cluster --------------------------------------------------------------

    def _make(self) -> GroupShard:
        shard = GroupShard(
            group_config(self._configs, self._consumer_config, self._share_config),
            compile_pattern,
            self._may_see,
        )
        shard.topics_changed(self._view, self._around.time.now_ms())
        return shard

    def _consumer_config(self, group_id: str) -> ConsumerGroupConfig:
        return self._settings_of(group_id).consumer

    def _share_config(self, group_id: str) -> ShareGroupConfig:
        return self._settings_of(group_id).share

    def _settings_of(self, group_id: str) -> GroupSettings:
        """Called at every heartbeat, so it is computed once for each change of configs."""
        configs = self._around.watcher.image.group_configs
        generation = self._configs.generation
        of = self._settings_are_of
        if of is None or of[0] is not configs or of[1] != generation:
            self._settings, self._settings_are_of = {}, (configs, generation)
        known = self._settings.get(group_id)
        if known is None:
            if len(self._settings) >= SETTINGS_MAX:
                self._settings.clear()
            known = self._read_settings(configs.get(group_id, {}))
            self._settings[group_id] = known
        return known

    def _read_settings(self, overrides: Mapping[str, str]) -> GroupSettings:
        def read(*names: str) -> list[int]:
            texts = [describe_group(name, overrides, self._configs).text for name in names]
            return [int(text) for text in texts if text is not None]

        return GroupSettings(
            ConsumerGroupConfig(
                *read(
                    "consumer.session.timeout.ms",
                    "consumer.heartbeat.interval.ms",
                    "consumer.assignment.interval.ms",
                )
            ),
            ShareGroupConfig(*read("share.session.timeout.ms", "share.heartbeat.interval.ms")),
        )

    def _tell_topics(self, runtime: ShardRuntime[GroupShard]) -> None:
        # Topics may have changed while the log was read.
        runtime.tell(lambda shard, now_ms: shard.topics_changed(self._view, now_ms))

    def follow(self, before: Image, after: Image) -> None:
        """Called at every change of the image, when the authorizer has followed it."""
        have_rights_changed = before.acls is not after.acls
        if before.topics is after.topics and not have_rights_changed:
            return
        view = topics_of(after)
        if view == self._view and not have_rights_changed:
            return
        self._view = view
        for runtime, _ in self.host.active():
            self._tell_topics(runtime)

    # -- figures ----------------------------------------------------------------------------

    @property
    def group_count(self) -> int:
        """Groups that have or had members; groups that only committed offsets are not counted."""
        return sum(len(shard.groups) for _, shard in self.host.active())
