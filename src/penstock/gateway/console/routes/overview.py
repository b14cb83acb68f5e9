"""The first page: rates, lag and health of the whole, now and over the last minutes."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.console.console import Console
from penstock.gateway.console.health import Problem, problems_of
from penstock.gateway.console.route_row import ConsoleRow
from penstock.gateway.console.visibility import Visibility, sight_of
from penstock.gateway.console.visible_samples import (
    Series,
    Trend,
    grow,
    rate_of,
    readers_of,
    series_of,
    trend_of,
    written_lately,
)
from penstock.gateway.http.server_sent_events import IDLE_MS, KEEP_ALIVE, EventStream

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


class TopicLine(Struct):
    name: str
    per_s: float | None
    recent: list[float]


class GroupLine(Struct):
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
    topics: list[TopicLine]
    groups: list[GroupLine]
    problems: list[Problem]
    node: dict[str, float]


def gauges_of(console: Console) -> dict[str, float]:
    """Some of this node's own metrics; what is not there (in a test) is left out."""
    families = console.ctx.metrics.catalogue.families
    found: dict[str, float] = {}
    for name in GAUGES:
        family = families.get(name)
        if family is not None and family.read is not None:
            found[name] = sum(value for _, value in family.read() if isinstance(value, int | float))
    return found


def body_of(console: Console, sight: Visibility) -> bytes:
    """The answer as JSON: made once for each look and principal."""
    sampler = console.sampler
    view = console.views.of(sight.principal, console.ctx.image.acls)
    if view.body_looks != sampler.looks:
        grow(view, sampler.samples, sampler.looks, sight.topic, sight.group)
        view.body = msgspec.json.encode(_overview(console, sight, series_of(view.points)))
        view.body_looks = sampler.looks
    return view.body


def _overview(console: Console, sight: Visibility, series: Series) -> OverviewAnswer:
    sampler, image = console.sampler, console.ctx.image
    samples, detail = sampler.samples, sampler.detail
    last = samples[-1]
    names = [name for name in last.written if sight.topic(name)]
    rates = {name: rate_of(samples, name) for name in names}
    busiest = sorted(names, key=lambda name: (-(rates[name] or 0), name))[:TOP]
    readers = [reader for reader in last.lines if sight.group(reader[0]) and sight.topic(reader[1])]
    by_group = readers_of({reader: last.lines[reader] for reader in readers})
    lags = {
        group: sum(last.lines[reader].lag for reader in rows) for group, rows in by_group.items()
    }
    furthest = sorted(by_group, key=lambda group: (-lags[group], group))[:TOP]
    seen = {
        name for name, topic in image.topics.items() if not topic.is_hidden and sight.topic(name)
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
            TopicLine(name, rates[name], written_lately(samples, name))
            for name in busiest
        ],
        [
            GroupLine(group, [topic for _, topic in by_group[group]],
                      trend_of(samples, by_group[group]))
            for group in furthest
        ],
        problems_of(sight, image, detail, samples, gauges),
        gauges,
    )  # fmt: skip


async def show(console: Console, request: Request) -> Response:
    await console.sampler.fresh()
    body = body_of(console, sight_of(console.ctx, request))
    return Response(body, media_type="application/json")


async def live(console: Console, request: Request) -> Response:
    await console.sampler.fresh()
    return EventStream(_looks(console, sight_of(console.ctx, request)), request.app.state.waits)


async def _looks(console: Console, sight: Visibility) -> AsyncIterator[bytes]:
    sampler = console.sampler
    while True:
        looks = sampler.looks
        yield b"event: overview\ndata: " + body_of(console, sight) + b"\n\n"
        while sampler.looks == looks:
            try:
                async with asyncio.timeout(IDLE_MS / 1000):
                    await sampler.next(looks)
            except TimeoutError:
                yield KEEP_ALIVE


ROWS = (
    ConsoleRow("GET", "/overview", "rates, lag and health, now and over the last minutes", show),
    ConsoleRow("GET", "/live", "the same as server-sent events, one for each look", live),
)
