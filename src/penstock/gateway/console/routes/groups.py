"""Groups of all kinds: lag, trend, and offset resets."""

import asyncio
from functools import partial

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.base.errors import Refused
from penstock.gateway.console import offset_resets
from penstock.gateway.console.console import Console
from penstock.gateway.console.route_row import ConsoleRow
from penstock.gateway.console.sampler import SELF
from penstock.gateway.console.visibility import Visibility, visibility_of
from penstock.gateway.console.visible_samples import Trend, readers_of, trend_of
from penstock.gateway.core.log_reader import Portion
from penstock.gateway.http.request_io import (
    json_answer,
    optional_text,
    principal_of,
    read_json,
    text,
)

OLDEST_BYTES = 16 << 10
OLDEST_MAX = 200
"""Maximum partitions whose first unread record is read for its timestamp."""


class ConsoleGroupRow(Struct):
    group: str
    kind: str
    state: str
    topics: list[str]
    trend: Trend


class ConsoleGroups(Struct):
    groups: list[ConsoleGroupRow]


class MemberRow(Struct):
    member_id: str
    client_id: str
    host: str


class PlaceRow(Struct):
    topic: str
    partition: int
    position: int
    end: int | None
    lag: int | None
    oldest_ms: int | None
    """Timestamp of the first unread record."""


class TopicTrend(Struct):
    topic: str
    trend: Trend


class ConsoleGroup(Struct):
    group: str
    kind: str
    state: str
    members: list[MemberRow]
    places: list[PlaceRow]
    trend: Trend
    topics: list[TopicTrend]


class MoveRow(Struct):
    topic: str
    partition: int
    old: int | None
    new: int
    end: int
    again: int


class ResetBody(Struct, forbid_unknown_fields=True):
    to: str
    topics: list[str] = []


class ResetAnswer(Struct):
    group: str
    members: int
    executed: bool
    moves: list[MoveRow]


async def list_groups(console: Console, request: Request) -> Response:
    visibility = visibility_of(console.ctx, request)
    return await console.answers.of(
        visibility.principal, "groups", partial(_groups, console, visibility)
    )


async def _groups(console: Console, visibility: Visibility) -> ConsoleGroups:
    samples, by_group = console.sampler.samples, _readers(console, visibility)
    found = await console.gateway.groups.all(visibility.principal)
    rows = [
        ConsoleGroupRow(
            row.group,
            row.kind,
            row.state,
            [topic for _, topic in by_group.get(row.group, ())],
            trend_of(samples, by_group.get(row.group, [])),
        )
        for row in found
        if not row.group.startswith("__")
    ]
    return ConsoleGroups(rows)


def _readers(console: Console, visibility: Visibility) -> dict[str, list[tuple[str, str]]]:
    progress = console.sampler.samples[-1].progress
    return readers_of(
        {reader: one for reader, one in progress.items() if visibility.topic(reader[1])}
    )


async def show_group(console: Console, request: Request) -> Response:
    await console.sampler.fresh()
    visibility, group = visibility_of(console.ctx, request), request.path_params["group"]
    described = await console.gateway.groups.one(visibility.principal, group)
    readers = _readers(console, visibility).get(group, [])
    samples, detail = console.sampler.samples, console.sampler.detail
    places: list[PlaceRow] = []
    for reader in readers:
        topic = reader[1]
        if reader in detail.queues:
            places += [
                PlaceRow(
                    topic,
                    row.partition,
                    row.start_offset,
                    row.high_watermark,
                    row.unfinished,
                    row.oldest_ms if row.oldest_ms >= 0 else None,
                )
                for row in detail.queues[reader].partitions
            ]
            continue
        for partition, position in sorted(detail.positions.get(reader, {}).items()):
            end = detail.ends.get((topic, partition))
            lag = None if end is None else max(0, end - position)
            places.append(PlaceRow(topic, partition, position, end, lag, None))
    await _add_oldest(console, places)
    return json_answer(
        ConsoleGroup(
            group,
            described.kind,
            described.state,
            [MemberRow(*member) for member in described.members],
            places,
            trend_of(samples, readers),
            [TopicTrend(reader[1], trend_of(samples, [reader])) for reader in readers],
        )
    )


async def _add_oldest(console: Console, places: list[PlaceRow]) -> None:
    """Adds the timestamps of the first unread records, for the partitions with the largest lag."""
    behind = [one for one in places if one.lag and one.oldest_ms is None]
    behind.sort(key=lambda one: -(one.lag or 0))
    by_topic: dict[str, dict[int, PlaceRow]] = {}
    for one in behind[:OLDEST_MAX]:
        by_topic.setdefault(one.topic, {})[one.partition] = one
    await asyncio.gather(*(_add_oldest_of_topic(console, *item) for item in by_topic.items()))


async def _add_oldest_of_topic(console: Console, name: str, rows: dict[int, PlaceRow]) -> None:
    topic = console.ctx.image.topics.get(name)
    if topic is None:
        return
    positions = {at: row.position for at, row in rows.items()}
    try:
        portions = await console.gateway.log.portions(
            SELF, topic, positions, partition_bytes=OLDEST_BYTES
        )
        for portion in portions:
            rows[portion.partition].oldest_ms = await console.ctx.workers.run(_first_ms, portion)
    except Refused:
        return  # A leader is moving: the lag is shown without its age.


def _first_ms(portion: Portion) -> int | None:
    if portion.error_code or portion.is_empty:
        return None
    return next((message.timestamp for message in portion.fetched.messages()), None)


# -- resets -----------------------------------------------------------------------------------


async def preview(console: Console, request: Request) -> Response:
    topic = optional_text(request, "topic")
    group, to = request.path_params["group"], text(request, "to")
    topics = [topic] if topic else []
    described, moves = await offset_resets.plan(console, principal_of(request), group, topics, to)
    return _answer(group, len(described.members), moves, executed=False)


async def reset(console: Console, request: Request) -> Response:
    body = await read_json(request, ResetBody)
    principal, group = principal_of(request), request.path_params["group"]
    described, moves = await offset_resets.plan(console, principal, group, body.topics, body.to)
    await offset_resets.apply(console, principal, described, moves)
    return _answer(group, len(described.members), moves, executed=True)


def _answer(
    group: str, members: int, moves: list[offset_resets.OffsetReset], *, executed: bool
) -> Response:
    rows = [
        MoveRow(one.topic, one.partition, one.old, one.new, one.end, one.again) for one in moves
    ]
    return json_answer(ResetAnswer(group, members, executed, rows))


ROWS = (
    ConsoleRow("GET", "/groups", "list groups with their lag and its trend", list_groups),
    ConsoleRow("GET", "/groups/{group}", "show a group: members, offsets, lag", show_group),
    ConsoleRow("GET", "/groups/{group}/reset", "preview an offset reset of a group", preview),
    ConsoleRow("POST", "/groups/{group}/reset", "reset the offsets of a group", reset),
)
