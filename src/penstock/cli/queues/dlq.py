"""`penstock dlq`: lists, shows and counts dead letters.

`dlq_redrive` redrives and purges them; `penstock dlq history` shows past redrives and purges, from
the topic that records them.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.queues.dlq_arguments import (
    dead_letter_topic,
    document_of,
    filter_of,
    filter_options,
    parse_message_id,
    show_data,
    topic_argument,
)
from penstock.cli.queues.dlq_redrive import purge, redrive
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.name_completion import dead_letter_topic_names
from penstock.cli.terminal.output import (
    OutputFormat,
    format_option,
    harmless,
    print_data,
    print_listing,
    print_table,
    printable,
    show_duration,
    show_time,
)
from penstock.cli.terminal.session import CommandSession, brokers_option, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from penstock.client.consumer.consumer import Consumer
    from penstock.client.dead_letters.filters import DeadLetterFilter
    from penstock.client.dead_letters.grouping import DeadLetterKinds
    from penstock.client.dead_letters.message import DeadLetterMessage
    from penstock.client.dead_letters.topics import DeadLetterTopic
    from penstock.client.list_offsets import OffsetSpan
    from penstock.client.metadata import TopicPartition


HISTORY_MAX = 100_000


@click.command("history")
@click.argument(
    "topic",
    required=False,
    shell_complete=dead_letter_topic_names,
    help="Only this dead-letter topic.",
)
@brokers_option
@format_option
def history(topic: str | None, brokers: str, format: OutputFormat) -> None:
    """Show past redrives, edits and purges: time, user, number of messages, filter.

    \b
    penstock dlq history
    penstock dlq history orders.dlq --format json
    """

    async def work(session: CommandSession) -> list[dict[str, Any]]:
        name = None if topic is None else await dead_letter_topic(session, topic)
        return [entry async for entry in _entries(session) if name in (None, entry["topic"])]

    runs: dict[str, dict[str, Any]] = {}
    for entry in run(brokers, work):
        known = runs.setdefault(entry["run"], {**entry, "count": 0, "letters": []})
        known["count"] += entry["count"]
        known["letters"] += [[entry["partition"], *run_] for run_ in entry["letters"]]
        known["until_ms"] = entry["at_ms"]
    found = [{k: v for k, v in one.items() if k != "partition"} for one in runs.values()]
    if format.is_data:
        print_data(found, format)
        return
    rows = [
        (
            show_time(one["at_ms"]),
            one["action"],
            one["topic"],
            one["count"],
            one["to"],
            json.dumps(one["filter"], ensure_ascii=False) if one["filter"] else None,
            one["who"],
            one["run"],
        )
        for one in found
    ]
    print_table(["at", "action", "topic", "messages ", "to", "filter", "who", "run"], rows)


async def _entries(session: CommandSession) -> AsyncIterator[dict[str, Any]]:
    from penstock.base.errors import ErrorCode, Refused
    from penstock.client.consumer.consumer import ConsumerConfig
    from penstock.client.consumer.fetched import READ_COMMITTED
    from penstock.client.dead_letters.redrive import AUDIT
    from penstock.client.list_offsets import partitions_of, resolve
    from penstock.client.offset_syntax import END, START, OffsetRange

    try:
        places = await partitions_of(session.cluster, AUDIT)
    except Refused as refused:
        if refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return  # No message was ever redriven or purged.
        raise
    spans = await resolve(session.cluster, places, OffsetRange(START, END), must_end=True)
    count = 0
    async with session.consumer(ConsumerConfig(isolation_level=READ_COMMITTED)) as consumer:
        consumer.assign(
            {w: span.start for w, span in spans.items() if span.start < (span.end or 0)}
        )
        while consumer.positions:
            for message in await consumer.poll():
                try:
                    yield json.loads(message.value or b"")
                except ValueError:
                    continue  # Not written by Penstock.
                count += 1
            _drop_finished(consumer, spans)
            if count >= HISTORY_MAX:
                print(f"showing the first {HISTORY_MAX:,} entries", file=sys.stderr)
                return


def _drop_finished(consumer: Consumer, spans: dict[TopicPartition, OffsetSpan]) -> None:
    for where, position in list(consumer.positions.items()):
        if position >= (spans[where].end or 0):
            consumer.unassign(where)


@click.group("dlq", no_args_is_help=True)
def dlq() -> None:
    """Inspect, redrive and purge dead letters."""


dlq.add_command(redrive)
dlq.add_command(purge)
dlq.add_command(history)


# -- list -------------------------------------------------------------------------------------


@dlq.command("list")
@click.argument(
    "topic",
    required=False,
    shell_complete=dead_letter_topic_names,
    help="List this topic's messages; without it, list the topics.",
)
@filter_options
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="At most this many messages.",
)
@brokers_option
@format_option
def list_command(
    topic: str | None, limit: int, brokers: str, format: OutputFormat, **chosen: Any
) -> None:
    """List dead-letter topics with depth and age, or the open messages of one.

    \b
    penstock dlq list
    penstock dlq list orders.dlq
    penstock dlq list orders.dlq --error 'Timeout*' --failed @-1h
    """
    if topic is None:
        _list_topics(brokers, format)
        return
    wanted = filter_of(**chosen)
    messages, has_more = run(brokers, lambda session: _read(session, topic, wanted, limit))
    print_listing(
        format,
        [document_of(message) for message in messages],
        [
            *("id", "failed", "error", "attempts ", "key", "source", "error message", "payload"),
            *("+group", "+first failure", "+redrives ", "+size "),
        ],
        [_row(message) for message in messages],
    )
    if has_more:
        print(f"showing the first {limit}; raise -n or use filters", file=sys.stderr)


def _row(message: DeadLetterMessage) -> tuple[object, ...]:
    return (
        message.id,
        show_time(message.last_failure_ms) if message.last_failure_ms > 0 else None,
        message.error_class or None,
        message.attempts,
        show_data(message.key, 30),
        None if message.source is None else str(message.source),
        message.error_message[:60] or None,
        show_data(message.payload, 40),
        message.group or None,
        _moment(message.first_failure_ms),
        message.redrives,
        message.size_bytes,
    )


async def _read(
    session: CommandSession, name: str, wanted: DeadLetterFilter, limit: int
) -> tuple[list[DeadLetterMessage], bool]:
    from contextlib import aclosing

    from penstock.client.dead_letters.open_messages import open_dead_letters

    topic = await dead_letter_topic(session, name)
    found: list[DeadLetterMessage] = []
    async with aclosing(open_dead_letters(session.cluster, topic, wanted)) as messages:
        async for message in messages:
            if len(found) >= limit:
                return found, True
            found.append(message)
    return found, False


def _list_topics(brokers: str, format: OutputFormat) -> None:
    async def work(session: CommandSession) -> tuple[list[DeadLetterTopic], int]:
        from penstock.client.dead_letters.topics import list_dead_letter_topics

        return await list_dead_letter_topics(session.cluster), session.clock.now_ms()

    boxes, now_ms = run(brokers, work)
    ages = [None if box.oldest_ms is None else max(0, now_ms - box.oldest_ms) for box in boxes]
    print_listing(
        format,
        [
            {
                "topic": box.topic,
                "partitions": box.partitions,
                "letters": box.messages,
                "oldest_ms": box.oldest_ms,
                "oldest_age_ms": age,
            }
            for box, age in zip(boxes, ages, strict=True)
        ],
        ["topic", "partitions ", "messages ", "oldest "],
        [
            (box.topic, box.partitions, box.messages, None if age is None else show_duration(age))
            for box, age in zip(boxes, ages, strict=True)
        ],
    )


# -- show -------------------------------------------------------------------------------------


@dlq.command("show")
@topic_argument
@click.argument("message", help="PARTITION:OFFSET, as `dlq list` shows it.")
@click.option("--payload-only", is_flag=True, help="Print only the payload, unchanged.")
@brokers_option
@format_option
def show(topic: str, message: str, payload_only: bool, brokers: str, format: OutputFormat) -> None:
    """Show a dead-lettered message: content, source and reason.

    \b
    penstock dlq show orders.dlq 0:15
    penstock dlq show orders.dlq 0:15 --payload-only > payload.json
    """
    from penstock.client.dead_letters.filters import DeadLetterFilter

    wanted = DeadLetterFilter(ids=frozenset({parse_message_id(message)}))
    messages, _ = run(brokers, lambda session: _read(session, topic, wanted, 1))
    if not messages:
        raise UserError(f"{topic} has no open message {message}; see `penstock dlq list`")
    found = messages[0]
    if payload_only:
        payload = found.payload or b""
        sys.stdout.buffer.write(harmless(payload) if sys.stdout.isatty() else payload)
    elif format.is_data:
        print_data(document_of(found), format)
    else:
        _print_message(found)


def _print_message(message: DeadLetterMessage) -> None:
    rows: list[tuple[str, object]] = [
        ("id", f"{message.topic} {message.id}"),
        ("dead-lettered", show_time(message.timestamp_ms)),
        ("error", message.error_class or None),
        ("error message", message.error_message or None),
        ("group", message.group or None),
        ("attempts", message.attempts),
        ("first failure", _moment(message.first_failure_ms)),
        ("last failure", _moment(message.last_failure_ms)),
        ("redrives", message.redrives),
        (
            "source",
            None if message.source is None else str(message.source),
        ),
        ("written", _moment(message.source_timestamp_ms)),
        ("key", show_data(message.key, None)),
    ]
    rows += [(f"header {name}", show_data(value, None)) for name, value in message.own_headers]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        text = "-" if value is None else printable(str(value), "\n\t")
        print(printable(name).ljust(width) + "  " + text.replace("\n", "\n" + " " * (width + 2)))
    if message.traceback:
        print()
        print(printable(message.traceback, "\n\t").rstrip())
    print()
    print(printable(show_data(message.payload, None) or "(no payload)", "\n\t"))


def _moment(at_ms: int) -> str | None:
    return show_time(at_ms) if at_ms > 0 else None


# -- stats ------------------------------------------------------------------------------------


@dlq.command("stats")
@topic_argument
@click.option(
    "--by",
    type=click.Choice(["error", "template", "class", "key", "group", "source", "redrives"]),
    default="error",
    show_default=True,
    help="Property to group by.",
)
@filter_options
@brokers_option
@format_option
def stats(topic: str, by: str, brokers: str, format: OutputFormat, **chosen: Any) -> None:
    """Count open messages by error or another property, most frequent first.

    \b
    penstock dlq stats orders.dlq
    penstock dlq stats orders.dlq --by key --error ValueError
    """
    wanted = filter_of(**chosen)

    async def work(session: CommandSession) -> DeadLetterKinds:
        from penstock.cli.terminal.progress import Progress
        from penstock.client.dead_letters.grouping import DeadLetterKinds
        from penstock.client.dead_letters.open_messages import open_dead_letters
        from penstock.client.dead_letters.topics import describe_dead_letter_topic

        name = await dead_letter_topic(session, topic)
        total = (await describe_dead_letter_topic(session.cluster, name)).messages
        kinds = DeadLetterKinds(by)
        with Progress(f"reading {name}", total, "messages") as progress:
            async for message in open_dead_letters(session.cluster, name, wanted):
                kinds.add(message)
                progress.advance()
        return kinds

    kinds = run(brokers, work)
    columns = [*kinds.columns, "count ", "first", "last", "sample"]
    rows = [
        (*kind.name, kind.count, show_time(kind.first_ms), show_time(kind.last_ms), kind.sample)
        for kind in kinds.largest()
    ]
    names = [column.strip() for column in columns]
    documents = [dict(zip(names, row, strict=True)) for row in rows]
    print_listing(format, {"letters": kinds.count, "kinds": documents}, columns, rows)
