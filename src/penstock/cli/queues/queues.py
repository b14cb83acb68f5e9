"""`penstock queue`: depth of the queues of share groups, and their unfinished records.

Inspection acquires no lease and counts no delivery.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from penstock.cli.queues.dlq_arguments import show_data
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.name_completion import group_names, topic_names
from penstock.cli.terminal.output import (
    OutputFormat,
    format_option,
    print_data,
    print_listing,
    print_table,
    show_duration,
    show_time,
)
from penstock.cli.terminal.session import (
    CommandSession,
    brokers_option,
    nearest,
    require_topics,
    run,
)

if TYPE_CHECKING:
    from penstock.client.consumer.fetched import FetchedRecord
    from penstock.client.metadata import TopicPartition
    from penstock.wire.messages.internal.queue_admin import QueueReport, QueueRun

INTERNAL_PREFIX = "__"
STATES = ("waiting", "leased", "failed", "given up")
PEEK_MAX = 10_000

topic_argument = click.argument("topic", help="The queue's topic.", shell_complete=topic_names)
group_option = click.option(
    "-g",
    "--group",
    "name",
    shell_complete=group_names,
    help="The share group; optional if the topic has only one.",
)


@dataclass(frozen=True)
class QueueNumbers:
    """Depths of a queue, summed over its partitions."""

    topic: str
    group: str
    reports: dict[TopicPartition, QueueReport]

    def total(self, name: str) -> int:
        return sum(getattr(report, name) for report in self.reports.values())

    def oldest_age_ms(self, now_ms: int) -> int | None:
        times = [report.oldest_ms for report in self.reports.values() if report.oldest_ms >= 0]
        return max(0, now_ms - min(times)) if times else None


@click.group("queue", no_args_is_help=True)
def queue() -> None:
    """Inspect queues: topics as share groups read them."""


# -- list -------------------------------------------------------------------------------------


@queue.command("list")
@click.option("-a", "--all", "every", is_flag=True, help="Include Penstock's internal queues.")
@brokers_option
@format_option
def list_command(every: bool, brokers: str, format: OutputFormat) -> None:
    """List queues with their ready, in-flight and delayed messages.

    \b
    penstock queue list
    penstock queue list --format json
    """

    async def work(session: CommandSession) -> tuple[list[QueueNumbers], int]:
        from penstock.client.admin.queues import list_queues

        names = await list_queues(session.cluster)
        shown = [n for n in names if every or not n.group.startswith(INTERNAL_PREFIX)]
        depths = [await _measure(session, n.topic, n.group) for n in shown]
        return depths, session.clock.now_ms()

    depths, now_ms = run(brokers, work)
    rows = [
        (
            depth.topic,
            depth.group,
            depth.total("unfinished"),
            depth.total("ready"),
            depth.total("leased"),
            depth.total("delayed"),
            _duration(depth.oldest_age_ms(now_ms)),
            depth.total("given_up"),
            len(depth.reports),
        )
        for depth in depths
    ]
    print_listing(
        format,
        [_document(depth, now_ms) for depth in depths],
        [
            *("topic", "group", "unfinished ", "ready ", "in flight ", "delayed ", "oldest "),
            *("+given up ", "+partitions "),
        ],
        rows,
    )


async def _measure(session: CommandSession, topic: str, group: str) -> QueueNumbers:
    from penstock.client.admin.queues import inspect
    from penstock.client.list_offsets import partitions_of

    places = await partitions_of(session.cluster, topic)
    return QueueNumbers(topic, group, await inspect(session.cluster, group, places))


def _document(depth: QueueNumbers, now_ms: int) -> dict[str, object]:
    return {
        "topic": depth.topic,
        "group": depth.group,
        "unfinished": depth.total("unfinished"),
        "ready": depth.total("ready"),
        "in_flight": depth.total("leased"),
        "delayed": depth.total("delayed"),
        "given_up": depth.total("given_up"),
        "oldest_age_ms": depth.oldest_age_ms(now_ms),
    }


def _duration(age_ms: int | None) -> str | None:
    return None if age_ms is None else show_duration(age_ms)


# -- describe ---------------------------------------------------------------------------------


@queue.command("describe")
@topic_argument
@group_option
@brokers_option
@format_option
def describe(topic: str, name: str | None, brokers: str, format: OutputFormat) -> None:
    """Show a queue partition by partition.

    \b
    penstock queue describe jobs
    penstock queue describe jobs -g workers --format json
    """

    async def work(session: CommandSession) -> tuple[QueueNumbers, int]:
        group = await _group_of(session, topic, name)
        return await _measure(session, topic, group), session.clock.now_ms()

    depth, now_ms = run(brokers, work)
    partitions = [
        {
            "partition": where.partition,
            "start_offset": report.start_offset if report.start_offset >= 0 else None,
            "end_offset": report.high_watermark,
            "unfinished": report.unfinished,
            "ready": report.ready,
            "in_flight": report.leased,
            "delayed": report.delayed,
            "given_up": report.given_up,
            "oldest_age_ms": max(0, now_ms - report.oldest_ms) if report.oldest_ms >= 0 else None,
            "is_open": report.is_open,
        }
        for where, report in depth.reports.items()
    ]
    if format.is_data:
        print_data({**_document(depth, now_ms), "partitions": partitions}, format)
        return
    print(f"topic  {depth.topic}")
    print(f"group  {depth.group}")
    print()
    columns = [
        "partition ",
        "start ",
        "end ",
        "unfinished ",
        "ready ",
        "in flight ",
        "delayed ",
        "given up ",
        "oldest ",
        "open",
    ]
    rows = [
        [_duration(v) if k == "oldest_age_ms" else v for k, v in row.items()] for row in partitions
    ]
    print_table(columns, rows)


async def _group_of(session: CommandSession, topic: str, name: str | None) -> str:
    """Returns the share group to inspect; refuses one that has not read the topic."""
    from penstock.client.admin.queues import list_queues

    await require_topics(session, [topic])
    groups = [queue.group for queue in await list_queues(session.cluster, [topic])]
    if name is not None:
        if name not in groups:
            close = nearest(name, groups)
            hint = f"did you mean {close!r}?" if close else "see `penstock queue list`"
            raise UserError(f"share group {name!r} has not read {topic!r}; {hint}")
        return name
    named = [group for group in groups if not group.startswith(INTERNAL_PREFIX)]
    if len(named) != 1:
        if not named:
            raise UserError(
                f"no share group has received from {topic!r} yet: the first one makes it a queue; "
                "see `penstock queue list`"
            )
        raise UserError(
            f"{len(named)} share groups read {topic!r}: name one with -g ({', '.join(named)})"
        )
    return named[0]


# -- peek -------------------------------------------------------------------------------------


@queue.command("peek")
@topic_argument
@group_option
@click.option(
    "-n",
    "--num",
    type=click.IntRange(1, PEEK_MAX),
    default=10,
    show_default=True,
    help="At most this many records.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=int,
    multiple=True,
    help="Only this partition; repeatable.",
)
@brokers_option
@format_option
def peek(
    topic: str,
    name: str | None,
    num: int,
    partitions: tuple[int, ...],
    brokers: str,
    format: OutputFormat,
) -> None:
    """Show the first unfinished records with their states, without acquiring them.

    \b
    penstock queue peek jobs -n 20
    penstock queue peek jobs -g workers -p 0
    """

    async def work(session: CommandSession) -> list[tuple[FetchedRecord, QueueRun]]:
        from penstock.client.list_offsets import partitions_of

        group = await _group_of(session, topic, name)
        found: list[tuple[FetchedRecord, QueueRun]] = []
        for where in await partitions_of(session.cluster, topic, list(partitions) or None):
            if len(found) < num:
                found += await _first_of(session, group, where, num - len(found))
        return found

    rows = run(brokers, work)
    print_listing(
        format,
        [_peeked(message, state) for message, state in rows],
        [
            *("partition ", "offset ", "state", "deliveries ", "until", "member", "key"),
            *("payload", "+written", "+headers"),
        ],
        [
            (
                message.partition,
                message.offset,
                STATES[state.state],
                state.delivery_count,
                show_time(state.until_ms) if state.until_ms > 0 else None,
                state.member or None,
                show_data(message.key, 30),
                show_data(message.value),
                show_time(message.timestamp),
                [f"{name}:{show_data(value)}" for name, value in message.headers],
            )
            for message, state in rows
        ],
    )
    if not rows and not format.is_data:
        print("no unfinished records", file=sys.stderr)


def _peeked(message: FetchedRecord, state: QueueRun) -> dict[str, object]:
    return {
        "partition": message.partition,
        "offset": message.offset,
        "timestamp_ms": message.timestamp,
        "state": STATES[state.state],
        "deliveries": state.delivery_count,
        "until_ms": state.until_ms if state.until_ms > 0 else None,
        "member": state.member or None,
        "key": show_data(message.key, None),
        "headers": [[name, show_data(value, None)] for name, value in message.headers],
        "payload": show_data(message.value, None),
    }


async def _first_of(
    session: CommandSession, group: str, where: TopicPartition, num: int
) -> list[tuple[FetchedRecord, QueueRun]]:
    from penstock.client.admin.queues import inspect
    from penstock.client.consumer.record_reader import read_at
    from penstock.state.queues.intervals import IntervalSet

    report = (await inspect(session.cluster, group, [where], runs_max=num))[where]
    wanted = IntervalSet()
    for one in report.runs:
        remaining = num - len(wanted)
        if remaining > 0:
            wanted.add(one.first, min(one.last, one.first + remaining - 1))
    found = []
    async for message in read_at(session.cluster, where, wanted):
        state = next(one for one in report.runs if one.first <= message.offset <= one.last)
        found.append((message, state))
    return found
