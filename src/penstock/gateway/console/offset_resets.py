"""Offset resets of groups, with a preview.

For a consumer group new offsets are committed, for a share group the start offsets are altered;
both need a group without members. Targets use the offset syntax (`start`, `-100`, `@-1h`); a target
outside of a log becomes the nearer end. The permissions are those of committing: READ on the group
and the topic.

Bounds: `MOVES_MAX` partitions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.client.errors import code_of
from penstock.client.offset_syntax import Anchor, OffsetPosition, OffsetSyntaxError, parse_position
from penstock.gateway.console.console import Console
from penstock.gateway.core.caller import Principal
from penstock.gateway.core.cluster_types import TopicImage
from penstock.gateway.core.coordinator_calls import raise_for
from penstock.gateway.core.groups import Commit, GroupDescription
from penstock.gateway.core.permissions import may, require_group, require_topic
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
