"""Topics: list with sizes and rates, and details of a topic."""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.base.fair_scheduler import picked
from penstock.base.ids import show_topic_id
from penstock.broker.api.route_row import Operation
from penstock.client.errors import code_of
from penstock.gateway.console.console import Console, ConsoleRow
from penstock.gateway.console.visibility import (
    Trend,
    Visibility,
    rate_of,
    trend_of,
    visibility_of,
    written_lately,
)
from penstock.gateway.core.cluster_types import PositionKind, TopicImage
from penstock.gateway.core.coordinator_calls import raise_for
from penstock.gateway.core.permissions import Principal
from penstock.gateway.core.topics import TOPIC_KIND
from penstock.gateway.http.request_io import flag, json_answer
from penstock.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from penstock.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicRequest,
)

OWN_SOURCE, DEFAULT_SOURCE = 1, 5
PRODUCERS_MAX = 100


class ConsoleTopicRow(Struct):
    name: str
    partitions: int
    replication_factor: int
    records: int
    size_bytes: int
    per_s: float | None
    recent: list[float]
    readers: int
    behind: int
    """Number of partitions with out-of-sync replicas."""
    leaderless: int
    is_internal: bool
    holds_dead_letters: bool


class ConsoleTopics(Struct):
    topics: list[ConsoleTopicRow]


class ConsoleTopicPartition(Struct):
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None


class ConfigRow(Struct):
    name: str
    value: str | None
    default: str | None
    is_set: bool
    source: str
    doc: str


class ReaderRow(Struct):
    group: str
    kind: str
    trend: Trend


class ProducerRow(Struct):
    producer_id: int
    epoch: int
    partitions: list[int]
    last_ms: int
    in_transaction: bool


class TopicRights(Struct):
    """Operations that the viewer may perform on a topic."""

    read: bool
    write: bool
    delete: bool
    alter_configs: bool


class ConsoleTopic(Struct):
    name: str
    topic_id: str
    is_internal: bool
    holds_dead_letters: bool
    per_s: float | None
    recent: list[float]
    partitions: list[ConsoleTopicPartition]
    configs: list[ConfigRow]
    readers: list[ReaderRow]
    producers: list[ProducerRow]
    skew: float | None
    """Records of the largest partition relative to the mean; None if there are too few."""
    may: TopicRights


async def list_topics(console: Console, request: Request) -> Response:
    visibility, internal = visibility_of(console.ctx, request), flag(request, "internal")

    async def make() -> ConsoleTopics:
        found = await console.gateway.topics.all(visibility.principal, internal=internal)
        dead_letter_topics = {topic.name for topic in console.gateway.dead_letters.topics()}
        rows = picked(found, lambda topic: _row(console, visibility, topic, dead_letter_topics))
        return ConsoleTopics(
            await console.ctx.metadata.scheduler.do(visibility.principal.holder, rows)
        )

    return await console.answers.of(visibility.principal, f"topics {internal}", make)


def _row(
    console: Console, visibility: Visibility, topic: TopicImage, dead_letter_topics: set[str]
) -> ConsoleTopicRow:
    detail, samples = console.sampler.detail, console.sampler.samples
    brokers = console.ctx.image.brokers
    places = [(topic.name, index) for index in range(len(topic.partitions))]
    return ConsoleTopicRow(
        topic.name,
        len(topic.partitions),
        len(topic.partitions[0].replicas),
        sum(detail.ends.get(place, 0) - detail.starts.get(place, 0) for place in places),
        sum(detail.sizes.get(place, 0) for place in places),
        rate_of(samples, topic.name),
        written_lately(samples, topic.name),
        len(_readers(console, visibility, topic.name)),
        sum(len(record.isr) < len(record.replicas) for record in topic.partitions),
        sum(record.leader not in brokers for record in topic.partitions),
        topic.is_internal,
        topic.name in dead_letter_topics,
    )


def _readers(console: Console, visibility: Visibility, topic: str) -> list[tuple[str, str]]:
    detail = console.sampler.detail
    return sorted(
        reader
        for reader in (*detail.positions, *detail.queues)
        if reader[1] == topic and visibility.group(reader[0])
    )


async def show_topic(console: Console, request: Request) -> Response:
    await console.sampler.fresh()
    visibility, gateway = visibility_of(console.ctx, request), console.gateway
    topic = gateway.topics.one(visibility.principal, request.path_params["name"])
    offsets = await gateway.topics.offsets(visibility.principal, topic)
    sampler = console.sampler

    def partition(at: int) -> ConsoleTopicPartition:
        record = topic.partitions[at]
        return ConsoleTopicPartition(
            at,
            record.leader,
            list(record.replicas),
            list(record.isr),
            offsets.start.get(at),
            offsets.end.get(at),
            sampler.detail.sizes.get((topic.name, at)),
        )

    rows = await console.ctx.metadata.scheduler.do(
        visibility.principal.holder, picked(range(len(topic.partitions)), partition)
    )
    kinds = {PositionKind.SHARE: "share", PositionKind.CONSUMER: "consumer"}
    progress = sampler.samples[-1].progress
    readers = [
        ReaderRow(
            reader[0],
            kinds[progress[reader].kind] if reader in progress else "",
            trend_of(sampler.samples, [reader]),
        )
        for reader in _readers(console, visibility, topic.name)
    ]
    return json_answer(
        ConsoleTopic(
            topic.name,
            show_topic_id(topic.id),
            topic.is_internal,
            any(one.name == topic.name for one in console.gateway.dead_letters.topics()),
            rate_of(sampler.samples, topic.name),
            written_lately(sampler.samples, topic.name),
            rows,
            await _configs(console, visibility.principal, topic.name),
            readers,
            await _producers(console, visibility.principal, topic),
            _skew(rows),
            TopicRights(
                visibility.topic(topic.name, Operation.READ),
                visibility.topic(topic.name, Operation.WRITE),
                visibility.topic(topic.name, Operation.DELETE),
                visibility.topic(topic.name, Operation.ALTER_CONFIGS),
            ),
        )
    )


def _skew(rows: list[ConsoleTopicPartition]) -> float | None:
    counts = [(row.end_offset or 0) - (row.start_offset or 0) for row in rows]
    total = sum(counts)
    if len(rows) < 2 or total < 10 * len(rows):
        return None
    return round(max(counts) * len(rows) / total, 2)


async def _configs(console: Console, principal: Principal, topic: str) -> list[ConfigRow]:
    """Returns all configs with their defaults; none if the caller may not describe them."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=TOPIC_KIND, resource_name=topic, configuration_keys=None
            )
        ],
        include_synonyms=True,
        include_documentation=True,
    )
    answer = await console.gateway.handlers.ask(principal, request, DescribeConfigsResponse)
    row = answer.results[0]
    if code_of(row.error_code).name.endswith("AUTHORIZATION_FAILED"):
        return []
    raise_for(row.error_code, row.error_message)
    sources = {OWN_SOURCE: "topic", DEFAULT_SOURCE: "default"}
    return [
        ConfigRow(
            config.name,
            config.value,
            # The value that the topic would have without its own.
            next((one.value for one in config.synonyms if one.source != OWN_SOURCE), None),
            config.config_source == OWN_SOURCE,
            sources.get(config.config_source, "broker"),
            config.documentation or "",
        )
        for config in row.configs
    ]


async def _producers(
    console: Console, principal: Principal, topic: TopicImage
) -> list[ProducerRow]:
    """Returns idempotent producers, the most recent first; none unless the caller may read the
    topic. That is checked here, because requests to other leaders have a node's permissions
    (`gateway.core.leader_calls`)."""
    if not Visibility(console.ctx, principal).topic(topic.name, Operation.READ):
        return []
    answers = await console.gateway.leaders.ask(
        principal,
        topic,
        range(len(topic.partitions)),
        lambda indexes: DescribeProducersRequest(
            topics=[DescribeProducersTopicRequest(name=topic.name, partition_indexes=indexes)]
        ),
        DescribeProducersResponse,
    )
    found: dict[int, ProducerRow] = {}
    for answer in answers:
        for row in (row for one in answer.topics for row in one.partitions):
            for state in row.active_producers:
                known = found.setdefault(
                    state.producer_id,
                    ProducerRow(state.producer_id, state.producer_epoch, [], -1, False),
                )
                known.partitions.append(row.partition_index)
                known.last_ms = max(known.last_ms, state.last_timestamp)
                known.in_transaction |= state.current_txn_start_offset >= 0
    ranked = sorted(found.values(), key=lambda row: (-row.last_ms, row.producer_id))
    for one in ranked:
        one.partitions.sort()
    return ranked[:PRODUCERS_MAX]


ROWS = (
    ConsoleRow("GET", "/topics", "list topics with sizes, rates and readers", list_topics),
    ConsoleRow(
        "GET", "/topics/{name}", "show a topic: partitions, configs, readers, producers", show_topic
    ),
)
