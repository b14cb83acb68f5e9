"""`penstock group seek`: moves a group's committed offsets, after a preview.

Without `--yes` it changes nothing. An offset outside the log is clamped to the log's start or end,
and the preview shows the offset to commit.

`--to file:` reads lines of topic,partition,offset, or of group,topic,partition,offset, from which
it takes those of this group. `penstock group describe --format csv` and kafka-consumer-groups write
this format. A header line and empty lines are skipped.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from penstock.cli.groups.arguments import (
    Chosen,
    is_chosen,
    parse_topics,
    refuse_members,
    require_group,
)
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.name_completion import group_names
from penstock.cli.terminal.output import OutputFormat, format_option, print_data, print_table
from penstock.cli.terminal.session import CommandSession, brokers_option, require_topics, run

if TYPE_CHECKING:
    from penstock.client.admin.groups import GroupInfo
    from penstock.client.metadata import TopicPartition

FILE_ROWS_MAX = 200_000


@dataclass(frozen=True)
class OffsetMove:
    """Change of one partition's committed offset."""

    where: TopicPartition
    old: int | None
    new: int
    wanted: int
    """Requested offset; `new` is the offset clamped to the log."""

    @property
    def difference(self) -> int | None:
        return None if self.old is None else self.new - self.old


@click.command("seek")
@click.argument("name", help="The group.", shell_complete=group_names)
@click.option(
    "--to",
    help="start, end, 5, +10, -10, @-1h, @2026-11-01, group:OTHER or file:OFFSETS.CSV.",
)
@click.option(
    "--to-group", metavar="OTHER", shell_complete=group_names, help="Same as --to group:OTHER."
)
@click.option("--to-file", metavar="OFFSETS.CSV", help="Same as --to file:OFFSETS.CSV.")
@click.option(
    "-t",
    "--topics",
    multiple=True,
    metavar="TOPIC[:0,2]",
    help="Only this topic, or these partitions; repeatable [all committed ones].",
)
@click.option(
    "-y",
    "--yes",
    "--execute",
    "execute",
    is_flag=True,
    help="Apply the moves instead of only showing them.",
)
@brokers_option
@format_option
def seek(
    name: str,
    to: str | None,
    to_group: str | None,
    to_file: str | None,
    topics: tuple[str, ...],
    execute: bool,
    brokers: str,
    format: OutputFormat,
) -> None:
    """Move a group's committed offsets; shows the moves, and applies them with --yes.

    The group must have no members. A file has lines of topic,partition,offset, as printed by
    `penstock group describe --format csv`; file:- is standard input.

    \b
    penstock group seek billing --to start
    penstock group seek billing --to @-1h -t orders -t payments:0,2 --yes
    penstock group seek billing-copy --to group:billing --yes
    penstock group seek billing --to file:offsets.csv --yes
    """
    chosen = parse_topics(topics)
    target = _parse_target(_one_target(to, to_group, to_file), name)

    async def work(session: CommandSession) -> list[OffsetMove]:
        from penstock.client.committed_offsets import commit_offsets

        moves = await _plan(session, name, target, chosen)
        if execute:
            offsets = {move.where: move.new for move in moves}
            await commit_offsets(session.cluster, name, offsets)
        return moves

    moves = run(brokers, work)
    if format.is_data:
        print_data({"group": name, "executed": execute, "partitions": _documents(moves)}, format)
        return
    _print_moves(moves)
    print()
    if execute:
        print(f"moved group {name}: {len(moves)} partition{'s' if len(moves) > 1 else ''}")
    else:
        print("nothing was changed: this was a preview; pass --yes to move the group")


# Command line.


@dataclass(frozen=True)
class Target:
    """Target of the move: exactly one field is set."""

    position: str | None = None
    group: str | None = None
    offsets: dict[tuple[str, int], int] | None = None


def _one_target(to: str | None, to_group: str | None, to_file: str | None) -> str:
    given = [] if to is None else [to]
    given += [] if to_group is None else [f"group:{to_group}"]
    given += [] if to_file is None else [f"file:{to_file}"]
    if len(given) != 1:
        raise click.UsageError(
            "pass one target: --to start, --to @-1h, --to-group OTHER or --to-file OFFSETS.CSV"
        )
    return given[0]


def _parse_target(text: str, group: str) -> Target:
    """Parses the target, and reports errors before connecting."""
    from penstock.base.ids import Millis
    from penstock.client.offset_syntax import OffsetSyntaxError, parse_position

    kind, colon, rest = text.partition(":")
    if colon and kind == "group":
        if not rest or rest == group:
            raise UserError(f"--to {text!r}: name another group, as in --to group:billing")
        return Target(group=rest)
    if colon and kind == "file":
        return Target(offsets=_read_file(rest, group))
    try:
        parse_position(text, Millis(0))
    except OffsetSyntaxError as error:
        words = str(error).replace(", 5:9, @-1h, @2026-11-01:end", ", @-1h, @2026-11-01")
        extra = ", group:OTHER or file:OFFSETS.CSV" if "try " in words else ""
        raise UserError(f"--to {words}{extra}") from None
    return Target(position=text)


def _read_file(path: str, group: str) -> dict[tuple[str, int], int]:
    if not path:
        raise UserError("--to file: needs a path, as in --to file:offsets.csv")
    if path == "-":
        return parse_rows(sys.stdin, group, "standard input")
    with open(path, encoding="utf-8-sig", newline="") as lines:
        return parse_rows(lines, group, path)


def parse_rows(lines: Iterable[str], group: str, source: str) -> dict[tuple[str, int], int]:
    """Parses offsets by topic and partition; errors name the line number."""
    found: dict[tuple[str, int], int] = {}
    try:
        for number, row in enumerate(csv.reader(lines), 1):
            cells = [cell.strip() for cell in row]
            is_heading = number == 1 and cells[-1:] == ["offset"]
            if not any(cells) or is_heading:
                continue
            if len(cells) == 4 and cells.pop(0) != group:
                continue
            is_right = len(cells) == 3 and cells[1].isdecimal() and cells[2].isdecimal()
            if not is_right:
                raise UserError(f"{source} line {number} is not topic,partition,offset")
            where = cells[0], int(cells[1])
            if where in found:
                raise UserError(f"{source} line {number}: {cells[0]}[{cells[1]}] occurs twice")
            if len(found) >= FILE_ROWS_MAX or int(cells[2]) >= 1 << 63:
                raise UserError(f"{source} line {number}: offset out of range, or too many lines")
            found[where] = int(cells[2])
    except (UnicodeDecodeError, csv.Error):
        raise UserError(f"{source} is not a file of topic,partition,offset lines") from None
    if not found:
        raise UserError(f"{source} has no offsets of group {group!r}")
    return found


# Plan.


async def _plan(
    session: CommandSession, name: str, target: Target, chosen: Chosen
) -> list[OffsetMove]:
    from penstock.client.committed_offsets import committed_offsets

    await require_topics(session, chosen)
    info = await _group_or_none(session, name)
    old = await committed_offsets(session.cluster, name) if info is not None else {}
    if info is None and target.position is not None and not chosen:
        # A new group needs topics; without any its name is probably a mistake.
        await require_group(session, name)
    if target.position is not None:
        wanted = await _by_position(session, name, target.position, chosen, sorted(old))
    else:
        wanted = await _by_list(session, target, chosen)
    if not wanted:
        raise UserError(f"nothing to move: no offsets of {', '.join(chosen) or 'any topic'}")
    low, high = await _bounds(session, list(wanted))
    return [
        OffsetMove(
            where,
            old[where].offset if where in old else None,
            min(max(wanted[where], low[where]), high[where]),
            wanted[where],
        )
        for where in sorted(wanted)
    ]


async def _group_or_none(session: CommandSession, name: str) -> GroupInfo | None:
    """Returns the group, or None if seeking will create it; refuses a group with members."""
    from penstock.base.errors import ErrorCode, Refused
    from penstock.client.admin.groups import describe_group

    try:
        info = await describe_group(session.cluster, name)
    except Refused as refused:
        if refused.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise
    refuse_members(info, "seek")
    return info


async def _by_position(
    session: CommandSession, name: str, text: str, chosen: Chosen, committed: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """Resolves a position for every partition of the chosen, or of all committed, topics."""
    from penstock.client.list_offsets import partitions_of, resolve
    from penstock.client.offset_syntax import OffsetRange, parse_position

    await session.cluster.refresh({where.topic for where in committed})
    known = session.cluster.metadata.topics
    # A topic may be deleted while its offsets remain.
    topics = chosen or {where.topic: None for where in committed if where.topic in known}
    if not topics:
        raise UserError(f"group {name!r} has no committed offsets; name its topics with -t")
    position = parse_position(text, session.clock.now_ms())
    places = [
        where
        for topic, indexes in topics.items()
        for where in await partitions_of(session.cluster, topic, indexes)
    ]
    spans = await resolve(session.cluster, places, OffsetRange(position))
    return {where: span.start for where, span in spans.items()}


async def _by_list(
    session: CommandSession, target: Target, chosen: Chosen
) -> dict[TopicPartition, int]:
    """Takes the offsets of another group or of a file, for the chosen topics."""
    from penstock.client.committed_offsets import committed_offsets
    from penstock.client.list_offsets import partitions_of
    from penstock.client.metadata import TopicPartition

    if target.group is not None:
        await require_group(session, target.group)
        kept = await committed_offsets(session.cluster, target.group)
        offsets = {where: committed.offset for where, committed in kept.items()}
    else:
        offsets = {TopicPartition(*where): n for where, n in (target.offsets or {}).items()}
    if chosen:
        offsets = {w: n for w, n in offsets.items() if is_chosen(chosen, w.topic, w.partition)}
    await require_topics(session, dict.fromkeys(where.topic for where in offsets))
    for topic in dict.fromkeys(where.topic for where in offsets):
        # Refuses partitions that the topic does not have.
        await partitions_of(
            session.cluster, topic, [where.partition for where in offsets if where.topic == topic]
        )
    return offsets


async def _bounds(
    session: CommandSession, places: list[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    from penstock.client.list_offsets import EARLIEST, LATEST, list_offsets

    starts = await list_offsets(session.cluster, dict.fromkeys(places, EARLIEST))
    ends = await list_offsets(session.cluster, dict.fromkeys(places, LATEST))
    return {w: starts[w].offset for w in places}, {w: ends[w].offset for w in places}


# Output.


def _documents(moves: list[OffsetMove]) -> list[dict[str, object]]:
    return [
        {
            "topic": move.where.topic,
            "partition": move.where.partition,
            "old_offset": move.old,
            "new_offset": move.new,
            "difference": move.difference,
        }
        for move in moves
    ]


def _print_moves(moves: list[OffsetMove]) -> None:
    rows = []
    for move in moves:
        difference = None if move.difference is None else f"{move.difference:+d}"
        note = "" if move.new == move.wanted else f"{move.wanted} is outside the log"
        rows.append((*move.where, move.old, move.new, difference, note))
    print_table(["topic", "partition ", "old ", "new ", "difference ", ""], rows)
