"""Administration of a cluster: topics, partitions, configs, records, log sizes.

Any broker accepts these requests; after NOT_CONTROLLER they are sent to the controller. A request
that changes something is not sent again if its outcome is unknown: the error is raised instead.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import NO_TOPIC_ID, TopicId
from penstock.client.cluster import Cluster
from penstock.client.errors import RETRIABLE, check, refusal
from penstock.client.metadata import TopicInfo, TopicPartition, by_topic
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
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from penstock.wire.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
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

TOPIC = 2
BROKER = 4
GROUP_CONFIGS = 32
SET = 0
DELETE = 1
APPEND = 2
SUBTRACT = 3

_SOURCES = {
    1: "topic",
    2: "broker",
    3: "cluster",
    4: "file",
    5: "default",
    6: "logger",
    8: "group",
}
_TYPES = {
    1: "boolean",
    2: "string",
    3: "int",
    4: "short",
    5: "long",
    6: "double",
    7: "list",
    8: "class",
    9: "password",
}

SHARE_RESET = "share.auto.offset.reset"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """Config of a topic, group or broker."""

    name: str
    value: str | None
    """None if it is sensitive or unset."""
    source: str
    kind: str
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None


class Admin:
    """Topics, records and configs of one cluster."""

    def __init__(self, cluster: Cluster, timeout_ms: int = 30_000) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    # Topics.

    async def list_topics(self) -> list[TopicInfo]:
        """Returns all topics, sorted by name."""
        await self._cluster.refresh(None)
        topics = self._cluster.metadata.topics
        return [topics[name] for name in sorted(topics)]

    async def describe_topics(self, names: Sequence[str]) -> list[TopicInfo]:
        """Returns these topics with current metadata. Raises Refused if one does not exist."""

        async def ask() -> list[TopicInfo]:
            await self._cluster.refresh(names)
            return [self._cluster.known_topic(name) for name in names]

        return await self._cluster.retrying(ask)

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
    ) -> TopicId:
        """Creates a topic and waits until this client sees it. -1 means the broker's default."""
        made = await self.create_topics(
            [name], partitions, replication_factor, configs, validate_only=validate_only
        )
        outcome = made[name]
        if isinstance(outcome, Refused):
            raise outcome
        return outcome

    async def create_topics(
        self,
        names: Sequence[str],
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
    ) -> dict[str, TopicId | Refused]:
        """Creates topics with equal settings and waits until this client sees them.

        Returns the id of each, or the error, in the given order. One request creates all, unless
        they have more partitions together than brokers create at once.
        """
        names = list(dict.fromkeys(names))
        done: dict[str, TopicId | Refused] = {}

        def creatable(name: str) -> CreatableTopic:
            return CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replication_factor,
                assignments=[],
                configs=[CreatableTopicConfig(name=k, value=v) for k, v in _items(configs)],
            )

        async def ask(node_id: int | None) -> None:
            request = CreateTopicsRequest(
                topics=[creatable(name) for name in names if name not in done],
                timeout_ms=self._timeout_ms,
                validate_only=validate_only,
            )
            reply = await self._cluster.call(request, CreateTopicsResponse, node_id=node_id)
            again: Refused | None = None
            is_progress = any(row.error_code == ErrorCode.NONE for row in reply.topics)
            for row in reply.topics:
                if row.error_code == ErrorCode.NONE:
                    done[row.name] = TopicId(bytes(row.topic_id))
                    continue
                refused = refusal(row.error_code, row.error_message, about=f"topic {row.name!r}")
                if refused.code in RETRIABLE:
                    again = refused
                elif refused.code is not ErrorCode.POLICY_VIOLATION or not is_progress:
                    done[row.name] = refused
            if again is not None:
                raise again

        try:
            known = -1
            while known < len(done) < len(names):
                known = len(done)
                await self._to_controller(ask)
        except Refused as refused:
            done.update((name, refused) for name in names if name not in done)
        outcomes = {name: done.get(name) or refusal(-1, about=f"topic {name!r}") for name in names}
        for name, outcome in outcomes.items():
            if not validate_only and not isinstance(outcome, Refused):
                await self._cluster.topic(name)
        return outcomes

    async def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(
            topic_names=[name],
            topics=[DeleteTopicState(name=name, topic_id=NO_TOPIC_ID)],
            timeout_ms=self._timeout_ms,
        )

        async def ask(node_id: int | None) -> None:
            reply = await self._cluster.call(request, DeleteTopicsResponse, node_id=node_id)
            for row in reply.responses:
                if row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise Refused(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist"
                    )
                check(row.error_code, row.error_message, about=f"topic {name!r}")

        await self._to_controller(ask)
        await self._cluster.refresh_quietly((name,))

    async def create_partitions(self, name: str, count: int) -> None:
        """Increases the number of partitions to `count`."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
            timeout_ms=self._timeout_ms,
            validate_only=False,
        )

        async def ask(node_id: int | None) -> None:
            reply = await self._cluster.call(request, CreatePartitionsResponse, node_id=node_id)
            for row in reply.results:
                check(row.error_code, row.error_message, about=f"topic {name!r}")

        await self._to_controller(ask)
        await self._cluster.refresh_quietly((name,))

    # Records.

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Deletes records before an offset (-1: the end); returns the new start offsets."""
        starts: dict[TopicPartition, int] = {}

        async def ask(node_id: int, places: list[TopicPartition]) -> None:
            rows = by_topic(
                (
                    where,
                    DeleteRecordsPartition(partition_index=where.partition, offset=before[where]),
                )
                for where in places
            )
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=name, partitions=rows[name]) for name in rows],
                timeout_ms=self._timeout_ms,
            )
            reply = await self._cluster.call(request, DeleteRecordsResponse, node_id=node_id)
            for topic in reply.topics:
                for row in topic.partitions:
                    where = TopicPartition(topic.name, row.partition_index)
                    check(row.error_code, about=str(where))
                    starts[where] = row.low_watermark

        async def attempt() -> None:
            missing = [where for where in before if where not in starts]
            for node_id, places in (await self._cluster.by_leader(missing)).items():
                await ask(node_id, places)

        # Deleting up to the same offset twice is harmless.
        await self._cluster.retrying(attempt, topics={where.topic for where in before})
        return starts

    async def log_sizes(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Returns bytes on disk per partition, of its largest replica."""
        sizes: dict[TopicPartition, int] = {}

        async def ask(node_id: int) -> None:
            request = DescribeLogDirsRequest(topics=None)
            reply = await self._cluster.call(request, DescribeLogDirsResponse, node_id=node_id)
            for log_dir in reply.results:
                for topic in log_dir.topics:
                    if topic.name not in topics:
                        continue
                    for row in topic.partitions:
                        where = TopicPartition(topic.name, row.partition_index)
                        sizes[where] = max(row.partition_size, sizes.get(where, 0))

        await asyncio.gather(*map(ask, sorted(self._cluster.metadata.brokers)))
        return sizes

    # Configs.

    async def describe_configs(
        self, kind: int, name: str, keys: Sequence[str] | None = None, *, documented: bool = False
    ) -> list[ConfigEntry]:
        """Returns the configs of a topic, group or broker (by node id), sorted by name."""
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=keys
                )
            ],
            include_documentation=documented,
        )
        node_id = int(name) if kind == BROKER and name else None

        async def ask() -> list[ConfigEntry]:
            reply = await self._cluster.call(request, DescribeConfigsResponse, node_id=node_id)
            entries = []
            for result in reply.results:
                check(result.error_code, result.error_message, about=_resource(kind, name))
                entries += [
                    ConfigEntry(
                        name=row.name,
                        value=row.value,
                        source=_SOURCES.get(row.config_source, "unknown"),
                        kind=_TYPES.get(row.config_type, "unknown"),
                        is_default=row.config_source == 5,
                        is_read_only=row.read_only,
                        is_sensitive=row.is_sensitive,
                        documentation=row.documentation,
                    )
                    for row in result.configs
                ]
            return sorted(entries, key=lambda entry: entry.name)

        return await self._cluster.retrying(ask)

    async def alter_configs(
        self,
        kind: int,
        name: str,
        sets: Mapping[str, str] | None = None,
        deletes: Sequence[str] = (),
    ) -> None:
        """Sets some configs and resets others to their default; the rest is unchanged."""
        rows = [
            IncrementalAlterableConfig(name=k, config_operation=SET, value=v)
            for k, v in _items(sets)
        ]
        rows += [
            IncrementalAlterableConfig(name=k, config_operation=DELETE, value=None) for k in deletes
        ]
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(
                    resource_type=kind, resource_name=name, configs=rows
                )
            ],
            validate_only=False,
        )

        async def ask(node_id: int | None) -> None:
            # Configs of a broker must be sent to that broker.
            node_id = int(name) if kind == BROKER and name else node_id
            reply = await self._cluster.call(
                request, IncrementalAlterConfigsResponse, node_id=node_id
            )
            for row in reply.responses:
                check(row.error_code, row.error_message, about=_resource(kind, name))

        await self._to_controller(ask)

    async def _to_controller(self, ask: Callable[[int | None], Awaitable[T]]) -> T:
        """Calls any broker first, and the controller after NOT_CONTROLLER."""
        node_id: int | None = None

        async def attempt() -> T:
            nonlocal node_id
            try:
                return await ask(node_id)
            except Refused as refused:
                if refused.code is ErrorCode.NOT_CONTROLLER:
                    await self._cluster.refresh(())
                    controller_id = self._cluster.metadata.controller_id
                    node_id = controller_id if controller_id >= 0 else None
                raise

        return await self._cluster.retrying(
            attempt, timeout_ms=self._timeout_ms, is_repeatable=False
        )


async def set_share_group_start(admin: Admin, group: str, start: str) -> None:
    """Sets the start offset of a share group, unless its configs set it already.

    By default, Kafka's share groups start at the end of the log and miss earlier records.
    """
    try:
        entries = await admin.describe_configs(GROUP_CONFIGS, group, [SHARE_RESET])
        if not any(entry.name == SHARE_RESET and entry.source == "group" for entry in entries):
            await admin.alter_configs(GROUP_CONFIGS, group, {SHARE_RESET: start})
    except Refused as refused:
        # Without permission to configure groups, the existing config applies.
        if refused.code not in (
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ):
            raise


def _items(configs: Mapping[str, str] | None) -> list[tuple[str, str]]:
    return sorted((configs or {}).items())


def _resource(kind: int, name: str) -> str:
    if kind == BROKER:
        return f"broker {name or 'default'}"
    return f"{'group' if kind == GROUP_CONFIGS else 'topic'} {name!r}"
