"""`penstock replay`: replays a range of a topic, for one group or as a copy in another topic.

Shows the range and asks for confirmation; `--dry-run` stops there.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from penstock.cli.terminal.confirm import confirm, yes_option
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.name_completion import group_names, topic_names
from penstock.cli.terminal.output import OutputFormat, format_option, print_data, print_table
from penstock.cli.terminal.session import (
    CommandSession,
    brokers_option,
    nearest,
    require_topics,
    run,
)

if TYPE_CHECKING:
    from penstock.client.consumer.record_counts import RecordCount
    from penstock.client.dead_letters.replay import CopyReport
    from penstock.client.list_offsets import OffsetSpan
    from penstock.client.metadata import TopicPartition
    from penstock.client.offset_syntax import OffsetRange


@dataclass(frozen=True)
class ReplaySelection:
    """Parsed command line of `replay`."""

    topic: str
    range: OffsetRange
    partitions: list[int] | None
    group: str | None
    to: str | None
    name: str
    rate: float | None
    restart: bool
    dry_run: bool
    yes: bool


@dataclass(frozen=True)
class ReplayOutcome:
    kind: str
    """`share group`, `consumer group` or `copy`."""
    spans: dict[TopicPartition, OffsetSpan]
    count: RecordCount
    """Affected range of each partition."""
    is_done: bool
    is_resumed: bool = False


@click.command("replay", short_help="Replay a topic for a group, or copy a range of it.")
@click.argument("topic", help="The topic to replay.", shell_complete=topic_names)
@click.option(
    "-g", "--group", shell_complete=group_names, help="Replay for this share or consumer group."
)
@click.option(
    "--to-topic",
    metavar="TOPIC",
    shell_complete=topic_names,
    help="Copy the range into this topic.",
)
@click.option("--from-offset", metavar="OFFSET", help="start, 5, +10 or -10 (before the end).")
@click.option("--from-time", metavar="TIME", help="-1h, 2026-11-01, 2026-11-01T12:00, 1700000000.")
@click.option("--until-offset", metavar="OFFSET", help="Exclusive end of the range [end].")
@click.option("--until-time", metavar="TIME", help="End before the first record of this time.")
@click.option("-p", "--partition", "partitions", type=int, multiple=True, help="Only of these.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    help="Copy at most this many records per second.",
)
@click.option("--name", help="Name of a copy, to resume it by [TOPIC.TO-TOPIC].")
@click.option("--restart", is_flag=True, help="Restart an interrupted copy from the beginning.")
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@yes_option
@brokers_option
@format_option
def replay(
    topic: str,
    group: str | None,
    to_topic: str | None,
    from_offset: str | None,
    from_time: str | None,
    until_offset: str | None,
    until_time: str | None,
    partitions: tuple[int, ...],
    rate: float | None,
    name: str | None,
    restart: bool,
    dry_run: bool,
    yes: bool,
    brokers: str,
    format: OutputFormat,
) -> None:
    """Replay a topic for one group, or copy a range of it; other groups are not affected.

    A share group gets the acknowledged records of the range again; its members keep running. A
    consumer group's offsets are reset, so it must have no members, and the range no end. A copy
    keeps keys, headers and timestamps; if it is interrupted, the same command resumes it.

    \b
    penstock replay orders --group billing --from-time -1h
    penstock replay jobs --group workers --from-offset 100 --until-offset 200
    penstock replay orders --to-topic orders.again --from-time 2026-11-01 --rate 1000
    """
    if (group is None) == (to_topic is None):
        raise UserError("pass either --group, to replay for it, or --to-topic, to copy into it")
    wanted = ReplaySelection(
        topic=topic,
        range=parse_range(from_offset, from_time, until_offset, until_time),
        partitions=list(partitions) or None,
        group=group,
        to=to_topic,
        name=name or f"{topic}.{to_topic}",
        rate=rate,
        restart=restart,
        dry_run=dry_run,
        yes=yes,
    )
    _print(wanted, run(brokers, lambda session: _replay(session, wanted)), format)


def parse_range(
    from_offset: str | None,
    from_time: str | None,
    until_offset: str | None,
    until_time: str | None,
) -> OffsetRange:
    """Parses the range: exactly one start and at most one end, in the offset syntax."""
    from penstock.client.offset_syntax import (
        OffsetPosition,
        OffsetRange,
        OffsetSyntaxError,
        parse_position,
    )
    from penstock.runtime.clock import SystemClock

    if (from_offset is None) == (from_time is None):
        raise UserError(
            "missing start of the range: pass one of --from-offset and --from-time, "
            "such as --from-time -1h"
        )
    if until_offset is not None and until_time is not None:
        raise UserError("use only one of --until-offset and --until-time")
    now_ms = SystemClock().now_ms()

    def position(option: str, text: str, *, is_time: bool) -> OffsetPosition:
        try:
            return parse_position(f"@{text.removeprefix('@')}" if is_time else text, now_ms)
        except OffsetSyntaxError as error:
            raise UserError(f"{option} {error}") from None

    if from_offset is not None:
        start = position("--from-offset", from_offset, is_time=False)
    else:
        start = position("--from-time", from_time or "", is_time=True)
    end = None
    if until_offset is not None:
        end = position("--until-offset", until_offset, is_time=False)
    elif until_time is not None:
        end = position("--until-time", until_time, is_time=True)
    return OffsetRange(start, end)


# -- execution ---------------------------------------------------------------------------------


async def _require_target(session: CommandSession, source: str, name: str) -> None:
    """Checks that the target exists. A copy keeps partitions if both topics have equally many."""
    await session.cluster.refresh(None)
    topics = session.cluster.metadata.topics
    if name not in topics:
        like = f"penstock topic create {name} -p {len(topics[source].partitions)}"
        raise UserError(f"topic {name!r} does not exist; create it first: `{like}`")


async def _replay(session: CommandSession, wanted: ReplaySelection) -> ReplayOutcome:
    from penstock.client.list_offsets import partitions_of, resolve

    await require_topics(session, [wanted.topic])
    if wanted.to is not None:
        await _require_target(session, wanted.topic, wanted.to)
    places = await partitions_of(session.cluster, wanted.topic, wanted.partitions)
    spans = await resolve(session.cluster, places, wanted.range, must_end=True)
    if wanted.to is not None:
        return await _copy(session, wanted, wanted.to, spans)
    assert wanted.group is not None
    if await _is_share_group(session, wanted.group, wanted.topic):
        return await _offer_again(session, wanted, wanted.group, spans)
    return await _seek(session, wanted, wanted.group, spans)


async def _is_share_group(session: CommandSession, group: str, topic: str) -> bool:
    from penstock.client.admin.groups import list_groups
    from penstock.client.admin.queues import list_queues

    queues = await list_queues(session.cluster, [topic])
    if any(queue.group == group for queue in queues):
        return True
    kinds = {one.name: one.kind for one in await list_groups(session.cluster)}
    if kinds.get(group) == "share":
        raise UserError(
            f"share group {group!r} has never read {topic!r}; there is nothing to replay"
        )
    if group not in kinds:
        close = nearest(group, kinds)
        hint = f"; did you mean {close!r}?" if close else ""
        print(f"penstock: group {group!r} is new{hint}", file=sys.stderr)
    return False


async def _offer_again(
    session: CommandSession,
    wanted: ReplaySelection,
    group: str,
    spans: dict[TopicPartition, OffsetSpan],
) -> ReplayOutcome:
    from penstock.client.consumer.record_counts import count_records
    from penstock.client.dead_letters.replay import finished_offsets, replay_share_group

    finished = {
        where: await finished_offsets(session.cluster, group, where, span)
        for where, span in spans.items()
    }
    count = await count_records(session.cluster, finished)
    if wanted.dry_run or not count.total:
        return ReplayOutcome("share group", spans, count, is_done=False)
    confirm(f"Redeliver {_many(count)} finished records of {wanted.topic} to {group}?", wanted.yes)
    await replay_share_group(session.cluster, group, spans)
    return ReplayOutcome("share group", spans, count, is_done=True)


async def _seek(
    session: CommandSession,
    wanted: ReplaySelection,
    group: str,
    spans: dict[TopicPartition, OffsetSpan],
) -> ReplayOutcome:
    from penstock.client.committed_offsets import commit_offsets

    if wanted.range.end is not None:
        raise UserError(
            "a replay for a consumer group has no end: leave out --until-offset and --until-time, "
            "or copy the range with --to-topic"
        )
    count = await _count_all(session, spans)
    if wanted.dry_run:
        return ReplayOutcome("consumer group", spans, count, is_done=False)
    confirm(f"Reset {group} to replay {_many(count)} records of {wanted.topic}?", wanted.yes)
    starts = {where: span.start for where, span in spans.items()}
    await commit_offsets(session.cluster, group, starts)
    return ReplayOutcome("consumer group", spans, count, is_done=True)


async def _copy(
    session: CommandSession,
    wanted: ReplaySelection,
    to: str,
    spans: dict[TopicPartition, OffsetSpan],
) -> ReplayOutcome:
    from penstock.base.errors import ErrorCode, Refused
    from penstock.cli.terminal.progress import Progress
    from penstock.client.admin.groups import delete_group
    from penstock.client.consumer.record_counts import RecordCount
    from penstock.client.dead_letters.replay import Copier, CopyPlan, cursor_group, unfinished_copy

    left = await unfinished_copy(session.cluster, wanted.name)
    if left and wanted.restart and not wanted.dry_run:
        try:
            await delete_group(session.cluster, cursor_group(wanted.name))
        except Refused as refused:
            if refused.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
        left = {}
    elif left:
        if any(where.topic != wanted.topic for where in left):
            raise UserError(f"{wanted.name!r} is a copy of another topic: choose another --name")
        print(f"resuming the interrupted copy {wanted.name!r}", file=sys.stderr)
    spans = left or spans
    count = await _count_all(session, spans)
    if wanted.dry_run or not count.total:
        return ReplayOutcome("copy", spans, count, is_done=False, is_resumed=bool(left))
    confirm(f"Copy {_many(count)} records of {wanted.topic} to {to}?", wanted.yes)
    copy = CopyPlan(wanted.name, to, spans, wanted.rate)
    with Progress(f"copying {wanted.topic} to {to}", count.total) as progress:
        report: CopyReport = await Copier(session.cluster, copy, progress.advance).run()
    copied = RecordCount(report.targets, is_exact=True)
    return ReplayOutcome("copy", spans, copied, is_done=True, is_resumed=report.is_resumed)


async def _count_all(
    session: CommandSession, spans: dict[TopicPartition, OffsetSpan]
) -> RecordCount:
    from penstock.client.consumer.record_counts import count_records
    from penstock.client.dead_letters.replay import offsets_of

    return await count_records(
        session.cluster, {where: offsets_of(span) for where, span in spans.items()}
    )


def _many(count: RecordCount) -> str:
    return f"{'' if count.is_exact else 'up to '}{count.total:,}"


# -- output --------------------------------------------------------------------------


def _print(wanted: ReplaySelection, outcome: ReplayOutcome, format: OutputFormat) -> None:
    if format.is_data:
        document = {
            "topic": wanted.topic,
            "group": wanted.group,
            "to": wanted.to,
            "kind": outcome.kind,
            "executed": outcome.is_done,
            "resumed": outcome.is_resumed,
            "records": outcome.count.total,
            "exact": outcome.count.is_exact,
            "partitions": [
                {"partition": where.partition, "from": span.start, "until": span.end}
                for where, span in sorted(outcome.spans.items())
            ],
        }
        print_data(document, format)
        return
    rows = [
        (where.partition, span.start, span.end, outcome.count.records.get(where))
        for where, span in sorted(outcome.spans.items())
    ]
    print_table(["partition ", "from ", "until ", "records "], rows)
    print()
    print(_sentence(wanted, outcome))


def _sentence(wanted: ReplaySelection, outcome: ReplayOutcome) -> str:
    many = _many(outcome.count)
    if not outcome.is_done and not wanted.dry_run:
        return "nothing to do: the range holds no records"
    would = "" if outcome.is_done else "would have "
    ending = "" if outcome.is_done else ": this was a dry run"
    match outcome.kind:
        case "copy":
            return f"{would}copied {many} records to {wanted.to}{ending}"
        case "share group":
            return f"{would}redelivered {many} records to {wanted.group}{ending}"
        case _:
            return f"{would}moved {wanted.group} to {many} records before the end{ending}"
