"""Topics for the gateway protocols: list, create, describe, grow, configure, delete.

The Kafka handlers do the work; any node can serve every request.

Reads and alters configs of topics and groups for the gateway protocols. A change is computed from
the configs at that moment; this node's image has it when the call returns. Callers check
permissions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.base.errors import ErrorCode, Refused
from penstock.base.fair_scheduler import picked
from penstock.base.ids import NO_TOPIC_ID
from penstock.broker.api.context import Context
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.cluster.configs import config_changes
from penstock.cluster.configs.config_changes import Alteration, Op
from penstock.cluster.configs.config_types import Value, counts_by_address
from penstock.cluster.configs.effective_configs import BrokerConfigs, Scope, topic_value
from penstock.cluster.metadata.image import TopicImage
from penstock.gateway.core.coordinator_calls import raise_for
from penstock.gateway.core.in_process_calls import InProcessCalls
from penstock.gateway.core.leader_calls import LeaderCalls
from penstock.gateway.core.permissions import Principal, may, require_topic
from penstock.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

Changes = Mapping[str, str | None]
"""Values by config; None unsets one."""


def topic_config(topic: TopicImage, name: str, configs: BrokerConfigs) -> Value:
    """Effective value of a topic's config."""
    return topic_value(name, topic.configs, configs)


def connections_max(configs: BrokerConfigs, address: str) -> int:
    """Maximum number of connections from an address."""
    overrides = counts_by_address(configs.text("max.connections.per.ip.overrides") or "")
    return overrides.get(address, configs.integer("max.connections.per.ip"))


class Configs:
    """Alters configs in the cluster's metadata."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    async def alter_topic(self, name: str, edit: Callable[[Mapping[str, str]], Changes]) -> None:
        """Alters a topic. `edit` gets the topic's overrides and may be called more than once."""

        def decide(present: Mapping[str, str]) -> dict[str, str]:
            return config_changes.altering(Scope.TOPIC, _steps(edit(present)))(present)

        store = self._ctx.admin.store
        await self._ctx.reached(await config_changes.alter_topic(store, name, decide))

    async def alter_group(self, group: str, changes: Changes) -> None:
        edit = config_changes.altering(Scope.GROUP, _steps(changes))
        ctx = self._ctx
        await ctx.reached(
            await config_changes.alter_group(ctx.admin.store, group, edit, ctx.configs)
        )


def _steps(changes: Changes) -> list[Alteration]:
    return [
        Alteration(name, Op.DELETE if value is None else Op.SET, value)
        for name, value in changes.items()
    ]


TIMEOUT_MS = 30_000
CONSUMER = -1
LATEST, EARLIEST = -1, -2
TOPIC_KIND, GROUP_KIND = 2, 32
SET, DELETE = 0, 1
USE_DEFAULT = -1
_OWN_SOURCES = {TOPIC_KIND: 1, GROUP_KIND: 8}
"""Config source (as in DescribeConfigs) of a value set on the topic or group itself."""


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """Config value; `is_set`: True if set on this topic or group itself."""

    name: str
    value: str | None
    is_set: bool


@dataclass(slots=True)
class OffsetBounds:
    """Start and end offsets by partition; missing if the leader did not answer."""

    start: dict[int, int] = field(default_factory=dict)
    end: dict[int, int] = field(default_factory=dict)


class TopicAdmin:
    """Administers the topics of the cluster."""

    def __init__(self, ctx: Context, handlers: InProcessCalls, leaders: LeaderCalls) -> None:
        self._ctx = ctx
        self._handlers = handlers
        self._leaders = leaders

    async def all(
        self, principal: Principal, *, internal: bool = False, prefix: str = ""
    ) -> list[TopicImage]:
        """Returns the topics that `principal` may describe, by name."""
        ctx = self._ctx

        def seen(item: tuple[str, TopicImage]) -> TopicImage | None:
            name, topic = item
            is_wanted = (internal or not topic.is_hidden) and name.startswith(prefix)
            right = principal, Operation.DESCRIBE, ResourceType.TOPIC, name
            return topic if is_wanted and may(ctx, *right) else None

        items = sorted(ctx.image.topics.items())
        return await ctx.metadata.scheduler.do(principal.holder, picked(items, seen))

    def one(self, principal: Principal, name: str) -> TopicImage:
        require_topic(self._ctx, principal, Operation.DESCRIBE, name)
        topic = self._ctx.image.topics.get(name)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        return topic

    async def create(
        self,
        principal: Principal,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> TopicImage:
        """Creates a topic; returns it once this node's image has it. None: the broker's default."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=USE_DEFAULT if partitions is None else partitions,
                    replication_factor=(
                        USE_DEFAULT if replication_factor is None else replication_factor
                    ),
                    assignments=(),
                    configs=[
                        CreatableTopicConfig(name=key, value=value)
                        for key, value in (configs or {}).items()
                    ],
                )
            ],
            timeout_ms=TIMEOUT_MS,
        )
        response = await self._handlers.ask(principal, request, CreateTopicsResponse)
        raise_for(response.topics[0].error_code, response.topics[0].error_message)
        topic = self._ctx.image.topics.get(name)
        if topic is None:
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} was deleted again meanwhile"
            )
        return topic

    async def delete(self, principal: Principal, name: str) -> None:
        self.one(principal, name)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=NO_TOPIC_ID)], timeout_ms=TIMEOUT_MS
        )
        response = await self._handlers.ask(principal, request, DeleteTopicsResponse)
        raise_for(response.responses[0].error_code, response.responses[0].error_message)

    async def grow(self, principal: Principal, name: str, partitions: int) -> None:
        """Raises a topic's number of partitions to `partitions`."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=partitions, assignments=None)],
            timeout_ms=TIMEOUT_MS,
            validate_only=False,
        )
        response = await self._handlers.ask(principal, request, CreatePartitionsResponse)
        raise_for(response.results[0].error_code, response.results[0].error_message)

    async def offsets(self, principal: Principal, topic: TopicImage) -> OffsetBounds:
        """Returns the start and end offsets of partitions whose leaders answer."""
        found = OffsetBounds()
        for timestamp, into in ((EARLIEST, found.start), (LATEST, found.end)):
            into |= await self.offsets_at(principal, topic, timestamp)
        return found

    async def offsets_at(
        self, principal: Principal, topic: TopicImage, timestamp: int
    ) -> dict[int, int]:
        """Returns the offsets at `timestamp`, or at the end (-1) or start (-2) of the logs."""
        require_topic(self._ctx, principal, Operation.DESCRIBE, topic.name)

        def request(indexes: list[int]) -> ListOffsetsRequest:
            rows = [ListOffsetsPartition(partition_index=at, timestamp=timestamp) for at in indexes]
            return ListOffsetsRequest(
                replica_id=CONSUMER,
                topics=[ListOffsetsTopic(name=topic.name, partitions=rows)],
                timeout_ms=TIMEOUT_MS,
            )

        answers = await self._leaders.ask(
            principal, topic, range(len(topic.partitions)), request, ListOffsetsResponse
        )
        return {
            row.partition_index: row.offset
            for answer in answers
            for there in answer.topics
            for row in there.partitions
            if not row.error_code and row.offset >= 0
        }

    # -- configs, of topics and of groups ---------------------------------------------------

    async def configs(self, principal: Principal, kind: int, name: str) -> list[ConfigValue]:
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=None
                )
            ]
        )
        response = await self._handlers.ask(principal, request, DescribeConfigsResponse)
        row = response.results[0]
        raise_for(row.error_code, row.error_message)
        own = _OWN_SOURCES[kind]
        return [
            ConfigValue(config.name, config.value, config.config_source == own)
            for config in row.configs
        ]

    async def alter_configs(
        self, principal: Principal, kind: int, name: str, values: Mapping[str, str | None]
    ) -> None:
        """Sets configs; None resets one to its default."""
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        IncrementalAlterableConfig(
                            name=key,
                            config_operation=DELETE if value is None else SET,
                            value=value,
                        )
                        for key, value in values.items()
                    ],
                )
            ],
            validate_only=False,
        )
        response = await self._handlers.ask(principal, request, IncrementalAlterConfigsResponse)
        raise_for(response.responses[0].error_code, response.responses[0].error_message)
