"""Overview page: rates, lag and health of the cluster, over minutes, an hour or a day.

Current problems of the cluster as sentences, the worst first.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.console.console import Console, ConsoleRow
from penstock.gateway.console.sampler import Detail, Sample, TopicReader
from penstock.gateway.console.visibility import (
    Series,
    Trend,
    Visibility,
    grow,
    grow_history,
    rate_of,
    readers_of,
    series_of,
    trend_of,
    visibility_of,
    written_lately,
)
from penstock.gateway.core.cluster_types import Image
from penstock.gateway.http.request_io import choice
from penstock.gateway.http.server_sent_events import IDLE_MS, KEEP_ALIVE, EventStream

BAD, WARNING = "bad", "warning"
PROBLEMS_MAX = 20
DISK_WARNING_PERCENT = 85
DISK_BAD_PERCENT = 95
STUCK_LAG = 100


class Problem(Struct):
    level: str
    text: str
    link: str
    """Console page to open."""


def problems_of(
    visibility: Visibility,
    image: Image,
    detail: Detail,
    samples: Sequence[Sample],
    gauges: Mapping[str, float],
) -> list[Problem]:
    found = [*_cluster_problems(visibility, image, gauges), *_stuck_groups(visibility, samples)]
    if detail.trouble:
        found.append(Problem(WARNING, f"Some groups are missing: {detail.trouble}", "#/groups"))
    for topic, queue in sorted(detail.dead_letters.items()):
        if queue.unfinished and visibility.topic(topic):
            text = f"{_count(queue.unfinished, 'open dead letter')} in {topic}"
            found.append(Problem(WARNING, text, f"#/dlq/{topic}"))
    found.sort(key=lambda problem: problem.level != BAD)
    return found[:PROBLEMS_MAX]


def _cluster_problems(
    visibility: Visibility, image: Image, gauges: Mapping[str, float]
) -> Iterator[Problem]:
    records = [record for topic in image.topics.values() for record in topic.partitions]
    leaderless = sum(record.leader not in image.brokers for record in records)
    behind = sum(len(record.isr) < len(record.replicas) for record in records)
    if leaderless:
        text = f"{_count(leaderless, 'partition')} without a leader: no writes or reads possible"
        yield Problem(BAD, text, "#/nodes?show=leaderless")
    if gauges.get("penstock_partitions_offline"):
        text = "Partitions on this node are offline: a disk has failed, or data is corrupt"
        yield Problem(BAD, text, "#/nodes")
    if gauges.get("penstock_partitions_under_min_isr"):
        text = "Partitions have fewer in-sync replicas than min.insync.replicas: writes are refused"
        yield Problem(BAD, text, "#/nodes?show=behind")
    elif behind:
        text = f"{_count(behind, 'partition')} with out-of-sync replicas"
        yield Problem(WARNING, text, "#/nodes?show=behind")
    if gauges.get("penstock_writes_refused"):
        yield Problem(BAD, "The disk is nearly full: writes are refused", "#/nodes")
    used = gauges.get("penstock_disk_used_percent", 0.0)
    if used >= DISK_WARNING_PERCENT:
        level = BAD if used >= DISK_BAD_PERCENT else WARNING
        yield Problem(level, f"The disk of this node is {used:.0f} % full", "#/nodes")
    if gauges.get("penstock_fenced"):
        yield Problem(BAD, "This node is fenced: it refuses writes", "#/nodes")


def _stuck_groups(visibility: Visibility, samples: Sequence[Sample]) -> Iterator[Problem]:
    """Yields groups whose lag grows while they read nothing."""
    if len(samples) < 2:
        return
    for reader, one in samples[-1].progress.items():
        if one.lag < STUCK_LAG or not (visibility.group(reader[0]) and visibility.topic(reader[1])):
            continue
        trend = trend_of(samples, [reader])
        if trend.per_s > 0 and not trend.read_per_s:
            yield Problem(WARNING, _stuck(reader, one.lag), f"#/groups/{reader[0]}")


def _stuck(reader: TopicReader, lag: int) -> str:
    return f"Group {reader[0]} does not read {reader[1]}: its lag is {lag:,} and growing"


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


TOP = 6
GAUGES = (
    "penstock_connections",
    "penstock_disk_free_bytes",
    "penstock_disk_used_percent",
    "penstock_fenced",
    "penstock_partitions_offline",
    "penstock_partitions_under_min_isr",
    "penstock_process_resident_bytes",
    "penstock_writes_refused",
)


class OverviewTopic(Struct):
    name: str
    per_s: float | None
    recent: list[float]


class OverviewGroup(Struct):
    name: str
    topics: list[str]
    trend: Trend


class OverviewTotals(Struct):
    nodes: int
    topics: int
    partitions: int
    groups: int
    queues: int
    records: int
    size_bytes: int


class OverviewAnswer(Struct):
    at_ms: int
    totals: OverviewTotals
    series: Series
    topics: list[OverviewTopic]
    groups: list[OverviewGroup]
    problems: list[Problem]
    node: dict[str, float]


def gauges_of(console: Console) -> dict[str, float]:
    """Returns some of this node's metrics; missing ones (in tests) are left out."""
    families = console.ctx.metrics.catalogue.families
    found: dict[str, float] = {}
    for name in GAUGES:
        family = families.get(name)
        if family is not None and family.read is not None:
            found[name] = sum(value for _, value in family.read() if isinstance(value, int | float))
    return found


def body_of(console: Console, visibility: Visibility) -> bytes:
    """Returns the response as JSON, computed once per sample and principal."""
    sampler = console.sampler
    view = console.views.of(visibility.principal, console.ctx.image.acls)
    if view.body_rounds != sampler.rounds:
        grow(view, sampler.samples, sampler.rounds, visibility.topic, visibility.group)
        view.body = msgspec.json.encode(_overview(console, visibility, series_of(view.points)))
        view.body_rounds = sampler.rounds
    return view.body


def _overview(console: Console, visibility: Visibility, series: Series) -> OverviewAnswer:
    sampler, image = console.sampler, console.ctx.image
    samples, detail = sampler.samples, sampler.detail
    last = samples[-1]
    names = [name for name in last.written if visibility.topic(name)]
    rates = {name: rate_of(samples, name) for name in names}
    busiest = sorted(names, key=lambda name: (-(rates[name] or 0), name))[:TOP]
    readers = [
        reader
        for reader in last.progress
        if visibility.group(reader[0]) and visibility.topic(reader[1])
    ]
    by_group = readers_of({reader: last.progress[reader] for reader in readers})
    lags = {
        group: sum(last.progress[reader].lag for reader in rows) for group, rows in by_group.items()
    }
    furthest = sorted(by_group, key=lambda group: (-lags[group], group))[:TOP]
    seen = {
        name
        for name, topic in image.topics.items()
        if not topic.is_hidden and visibility.topic(name)
    }
    gauges = gauges_of(console)
    return OverviewAnswer(
        last.at_ms,
        OverviewTotals(
            len(image.brokers),
            len(seen),
            sum(len(image.topics[name].partitions) for name in seen),
            len(by_group),
            sum(reader in detail.queues for reader in readers),
            sum(
                end - detail.starts.get(place, 0)
                for place, end in detail.ends.items()
                if place[0] in seen
            ),
            sum(size for place, size in detail.sizes.items() if place[0] in seen),
        ),
        series,
        [
           OverviewTopic(name, rates[name], written_lately(samples, name))
            for name in busiest
        ],
        [
           OverviewGroup(group, [topic for _, topic in by_group[group]],
                      trend_of(samples, by_group[group]))
            for group in furthest
        ],
        problems_of(visibility, image, detail, samples, gauges),
        gauges,
    )  # fmt: skip


async def show(console: Console, request: Request) -> Response:
    await console.sampler.fresh()
    body = body_of(console, visibility_of(console.ctx, request))
    return Response(body, media_type="application/json")


class HistoryAnswer(Struct):
    period: str
    step_s: float
    """Distance of the points; they begin when the node started, or later."""
    series: Series


async def history(console: Console, request: Request) -> Response:
    period = choice(request, "period", "hour", "day")
    kept, views = console.history.hour, console.hour_views
    if period == "day":
        kept, views = console.history.day, console.day_views
    visibility = visibility_of(console.ctx, request)
    view = views.of(visibility.principal, console.ctx.image.acls)
    await grow_history(view, kept, visibility.topic, visibility.group)
    answer = HistoryAnswer(period, kept.period.step_s, series_of(view.points))
    return Response(msgspec.json.encode(answer), media_type="application/json")


async def live(console: Console, request: Request) -> Response:
    await console.sampler.fresh()
    return EventStream(
        _events(console, visibility_of(console.ctx, request)), request.app.state.waits
    )


async def _events(console: Console, visibility: Visibility) -> AsyncIterator[bytes]:
    sampler = console.sampler
    while True:
        rounds = sampler.rounds
        yield b"event: overview\ndata: " + body_of(console, visibility) + b"\n\n"
        while sampler.rounds == rounds:
            try:
                async with asyncio.timeout(IDLE_MS / 1000):
                    await sampler.next(rounds)
            except TimeoutError:
                yield KEEP_ALIVE


ROWS = (
    ConsoleRow("GET", "/overview", "show rates, lag and health over the last minutes", show),
    ConsoleRow("GET", "/overview/history", "show rates and lag over an hour or a day", history),
    ConsoleRow("GET", "/live", "stream the overview as server-sent events", live),
)
