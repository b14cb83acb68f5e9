"""Moving a group to another place, with a look at what that would do first.

A consumer group's positions are committed, a share group's start is moved; both need a group
without members. Where to is said in the words of the offset grammar (`start`, `-100`, `@-1h`), and
what lies outside of a log is its nearer end. The rights are those of committing: to read the group
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
    """None: the group has no position there."""
    new: int
    end: int

    @property
    def again(self) -> int:
        """Records that the group reads once more; below 0: records that it passes over."""
        return 0 if self.old is None else self.old - self.new


async def plan(
    console: Console, principal: Principal, group: str, topics: Sequence[str], to: str
) -> tuple[GroupDescription, list[OffsetReset]]:
    """What a reset would do; `topics`: only these, none of them means all that the group reads."""
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
            f"{group} has read topics that {principal} may not read: name those that are meant",
        )
    moves: list[OffsetReset] = []
    for name in topics or sorted(own):
        require_topic(console.ctx, principal, Operation.READ, name)
        topic = console.gateway.topics.one(principal, name)
        moves += await _moves(console, principal, described, topic, position)
    if not moves:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{group} has read nothing: name a topic for it")
    if len(moves) > MOVES_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, f"more than {MOVES_MAX} partitions: name topics")
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
    """Refuses if the group has members, or some partition says no."""
    if group.members:
        raise Refused(
            ErrorCode.NON_EMPTY_GROUP,
            f"{group.group} has {len(group.members)} members: stop them first",
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
