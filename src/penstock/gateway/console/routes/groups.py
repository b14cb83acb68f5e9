"""Groups of all kinds: lag, trend, and offset resets.

Offset resets of groups, with a preview. For a consumer group new offsets are committed, for a
share group the start offsets are altered; both need a group without members. Targets use the
offset syntax (`start`, `-100`, `@-1h`); a target outside of a log becomes the nearer end. The
permissions are those of committing: READ on the group and the topic.

Bounds: `MOVES_MAX` partitions.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.base.errors import ErrorCode, Refused
from penstock.base.fair_scheduler import picked
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.client.errors import code_of
from penstock.client.offset_syntax import Anchor, OffsetPosition, OffsetSyntaxError, parse_position
from penstock.gateway.console.console import Console, ConsoleRow
from penstock.gateway.console.sampler import SELF
from penstock.gateway.console.visibility import (
    Trend,
    Visibility,
    readers_of,
    trend_of,
    visibility_of,
)
from penstock.gateway.core.cluster_types import TopicImage
from penstock.gateway.core.coordinator_calls import raise_for
from penstock.gateway.core.groups import Commit, GroupDescription, GroupSummary
from penstock.gateway.core.log_reader import Portion
from penstock.gateway.core.permissions import Principal, may, require_group, require_topic
from penstock.gateway.http.request_io import (
    json_answer,
    optional_text,
    principal_of,
    read_json,
    text,
)
from penstock.wire.messages.share_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)

MOVES_MAX = 10_000
SHARE = "share"


@dataclass(frozen=True, slots=True)
class OffsetReset:
    topic: str
    partition: int
    old: int | None
    """None: the group has no offset there."""
    new: int
    end: int

    @property
    def again(self) -> int:
        """Number of records that the group reads again; negative: records that it skips."""
        return 0 if self.old is None else self.old - self.new


async def plan(
    console: Console, principal: Principal, group: str, topics: Sequence[str], to: str
) -> tuple[GroupDescription, list[OffsetReset]]:
    """Plans a reset of `topics`; if empty, of all topics that the group reads."""
    require_group(console.ctx, principal, Operation.READ, group)
    described = await console.gateway.groups.one(principal, group)
    try:
        position = parse_position(to, console.ctx.clock.now_ms())
    except OffsetSyntaxError as error:
        raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from None
    await console.sampler.fresh()
    detail = console.sampler.detail
    own = [topic for name, topic in (*detail.positions, *detail.queues) if name == group]
    if not topics and not all(
        may(console.ctx, principal, Operation.READ, ResourceType.TOPIC, name) for name in own
    ):
        raise Refused(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"group {group} reads topics on which {principal} lacks READ permission: name the "
            "topics to reset",
        )
    moves: list[OffsetReset] = []
    for name in topics or sorted(own):
        require_topic(console.ctx, principal, Operation.READ, name)
        topic = console.gateway.topics.one(principal, name)
        moves += await _moves(console, principal, described, topic, position)
    if not moves:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"group {group} has not read any topic: name a topic"
        )
    if len(moves) > MOVES_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"too many partitions: {len(moves)}, at most {MOVES_MAX}; name fewer topics",
        )
    return described, moves


async def _moves(
    console: Console,
    principal: Principal,
    group: GroupDescription,
    topic: TopicImage,
    position: OffsetPosition,
) -> list[OffsetReset]:
    topics = console.gateway.topics
    offsets = await topics.offsets(principal, topic)
    if position.anchor is Anchor.TIME:
        at_time = await topics.offsets_at(principal, topic, position.value)
        wanted = {at: at_time.get(at, end) for at, end in offsets.end.items()}
    elif position.anchor is Anchor.EXACT:
        wanted = dict.fromkeys(offsets.end, position.value)
    else:
        is_start = position.anchor is Anchor.START
        distance = position.value if is_start else -position.value
        ends = offsets.start if is_start else offsets.end
        wanted = {at: offset + distance for at, offset in ends.items()}
    if group.kind == SHARE:
        queue = await console.gateway.queues.one(principal, topic.name, group.group)
        old = {row.partition: row.start_offset for row in queue.partitions if row.start_offset >= 0}
    else:
        old = await console.gateway.groups.positions(principal, group.group, topic)
    return [
        OffsetReset(
            topic.name,
            at,
            old.get(at),
            min(max(offset, offsets.start.get(at, 0)), offsets.end[at]),
            offsets.end[at],
        )
        for at, offset in sorted(wanted.items())
    ]


async def apply(
    console: Console, principal: Principal, group: GroupDescription, moves: Sequence[OffsetReset]
) -> None:
    """Executes a reset; refuses if the group has members, or if a partition refuses."""
    if group.members:
        raise Refused(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group.group} has {len(group.members)} members: stop them first",
        )
    if group.kind == SHARE:
        await _move_share_group(console, principal, group.group, moves)
        return
    commits = [Commit(move.topic, move.partition, move.new) for move in moves]
    for refused in await console.gateway.groups.commit(principal, group.group, commits):
        if refused is not None:
            raise refused


async def _move_share_group(
    console: Console, principal: Principal, group: str, moves: Sequence[OffsetReset]
) -> None:
    topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for move in moves:
        row = AlterShareGroupOffsetsRequestPartition(
            partition_index=move.partition, start_offset=move.new
        )
        topics.setdefault(move.topic, []).append(row)
    request = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=rows)
            for name, rows in topics.items()
        ],
    )
    answer = await console.gateway.coordinators.ask(
        principal,
        group,
        request,
        AlterShareGroupOffsetsResponse,
        lambda response: [response.error_code],
    )
    raise_for(answer.error_code, answer.error_message)
    for topic in answer.responses:
        for moved in topic.partitions:
            if moved.error_code:
                raise Refused(code_of(moved.error_code), moved.error_message)


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


class GroupRights(Struct):
    """Operations that the viewer may perform on a group."""

    reset: bool
    delete: bool


class ConsoleGroup(Struct):
    group: str
    kind: str
    state: str
    members: list[MemberRow]
    places: list[PlaceRow]
    trend: Trend
    topics: list[TopicTrend]
    may: GroupRights


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

    def shown(row: GroupSummary) -> ConsoleGroupRow | None:
        if row.group.startswith("__"):
            return None
        readers = by_group.get(row.group, [])
        topics = [topic for _, topic in readers]
        return ConsoleGroupRow(row.group, row.kind, row.state, topics, trend_of(samples, readers))

    scheduler = console.ctx.metadata.scheduler
    return ConsoleGroups(await scheduler.do(visibility.principal.holder, picked(found, shown)))


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
            GroupRights(
                visibility.group(group, Operation.READ), visibility.group(group, Operation.DELETE)
            ),
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
    described, moves = await plan(console, principal_of(request), group, topics, to)
    return _answer(group, len(described.members), moves, executed=False)


async def reset(console: Console, request: Request) -> Response:
    body = await read_json(request, ResetBody)
    principal, group = principal_of(request), request.path_params["group"]
    described, moves = await plan(console, principal, group, body.topics, body.to)
    await apply(console, principal, described, moves)
    return _answer(group, len(described.members), moves, executed=True)


def _answer(group: str, members: int, moves: list[OffsetReset], *, executed: bool) -> Response:
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
