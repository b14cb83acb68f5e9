"""Internal topics that store the coordinators' state, created on first use.

Compacted, so that they hold the last record of each key; replicated as their configs say. In a
cluster they are not created before there are enough brokers for that, because missing replicas are
not added later; on a single node other brokers never come, so the number of replicas is capped at
the number of brokers. The number of partitions is fixed at creation: it decides which node
coordinates which group.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Random, Store, UnknownResult
from penstock.cluster.configs.effective_configs import BrokerConfigs
from penstock.cluster.metadata import store_keys, topics
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher
from penstock.cluster.metadata.topics import NewTopic
from penstock.cluster.replication.partitions import Partitions

CREATE_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A topic and the broker configs that determine it."""

    name: str
    partitions: str | int
    """Name of a config, or a fixed number."""
    replication_factor: str
    segment_bytes: str
    min_isr: str | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


OFFSETS = InternalTopic(
    name="__consumer_offsets",
    partitions="offsets.topic.num.partitions",
    replication_factor="offsets.topic.replication.factor",
    segment_bytes="offsets.topic.segment.bytes",
    configs={"cleanup.policy": "compact", "compression.type": "producer"},
)
TRANSACTIONS = InternalTopic(
    name="__transaction_state",
    partitions="transaction.state.log.num.partitions",
    replication_factor="transaction.state.log.replication.factor",
    segment_bytes="transaction.state.log.segment.bytes",
    min_isr="transaction.state.log.min.isr",
    configs={
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "unclean.leader.election.enable": "false",
    },
)


class InternalTopics:
    """Creates internal topics, once."""

    def __init__(
        self,
        store: Store,
        watcher: MetadataWatcher,
        partitions: Partitions,
        configs: BrokerConfigs,
        random: Random,
        *,
        is_alone: bool = True,
    ) -> None:
        """`is_alone`: this node has no other nodes beside it, now or later."""
        self._is_alone = is_alone
        self._store = store
        self._watcher = watcher
        self._partitions = partitions
        self._configs = configs
        self._random = random
        self._creating = asyncio.Lock()

    async def ensure(self, topic: InternalTopic) -> None:
        """Returns when the topic exists and its partitions here are open; else refuses."""
        try:
            async with asyncio.timeout(CREATE_SECONDS_MAX):
                while (known := self._watcher.image.topics.get(topic.name)) is None:
                    async with self._creating:
                        if topic.name not in self._watcher.image.topics:
                            await self._create(topic)
                await self._partitions.reached(known.revision)
        except (TimeoutError, UnknownResult, ConnectionError) as error:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error

    async def _create(self, topic: InternalTopic) -> None:
        image = self._watcher.image
        configs = self._configs
        factor = configs.integer(topic.replication_factor)
        if self._is_alone:
            factor = max(1, min(factor, len(image.brokers)))
        elif len(image.brokers) < factor:
            raise Refused(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{topic.name} is created when there are {factor} brokers "
                f"({topic.replication_factor}); there are {len(image.brokers)}",
            )
        own = {**topic.configs, "segment.bytes": str(configs.integer(topic.segment_bytes))}
        if topic.min_isr is not None:
            own["min.insync.replicas"] = str(min(factor, configs.integer(topic.min_isr)))
        count = topic.partitions
        if isinstance(count, str):
            count = configs.integer(count)
        new = NewTopic(topic.name, count, factor, configs=own)
        try:
            plan = topics.plan_topic(new, image, configs, self._random)
            revision = await topics.create_topic(self._store, plan)
        except Refused as refused:
            if refused.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(refused)) from refused
            # Another node was first.
            entry = await self._store.get(store_keys.topic_key(topic.name))
            revision = entry.revision if entry is not None else 0
        await self._watcher.reached(revision)
