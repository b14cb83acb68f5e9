"""`penstock dlq`: looking at dead letters. Settling them is in `dlq_errands`, the record of that in
`dlq_history`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.queues.dlq_arguments import (
    document_of,
    filter_of,
    filter_options,
    letters_topic,
    parse_letter,
    show_data,
    topic_argument,
)
from penstock.cli.queues.dlq_history import history
from penstock.cli.queues.dlq_redrive import purge, redrive
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.name_completion import letter_topic_names
from penstock.cli.terminal.output import (
    OutputFormat,
    format_option,
    harmless,
    print_data,
    print_listing,
    printable,
    show_duration,
    show_time,
)
from penstock.cli.terminal.session import CommandSession, brokers_option, run

if TYPE_CHECKING:
    from penstock.client.dead_letters.message import DeadLetterFilter, DeadLetterMessage
    from penstock.client.dead_letters.topics import DeadLetterKinds, DeadLetterTopic


@click.group("dlq", no_args_is_help=True)
def dlq() -> None:
    """Inspect dead letters, send them back, purge them."""


dlq.add_command(redrive)
dlq.add_command(purge)
dlq.add_command(history)


# -- list -------------------------------------------------------------------------------------


@dlq.command("list")
@click.argument(
    "topic",
    required=False,
    shell_complete=letter_topic_names,
    help="List its letters; without it, list the topics.",
)
@filter_options
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="At most so many letters.",
)
@brokers_option
@format_option
def list_command(
    topic: str | None, limit: int, brokers: str, format: OutputFormat, **chosen: Any
) -> None:
    """List topics of dead letters with their depth and age, or the open letters of one.

    \b
    penstock dlq list
    penstock dlq list orders.dlq
    penstock dlq list orders.dlq --error 'Timeout*' --failed @-1h
    """
    if topic is None:
        _list_boxes(brokers, format)
        return
    wanted = filter_of(**chosen)
    letters, has_more = run(brokers, lambda session: _read(session, topic, wanted, limit))
    print_listing(
        format,
        [document_of(letter) for letter in letters],
        [
            *("letter", "failed", "error", "attempts ", "key", "source", "message", "payload"),
            *("+group", "+first failure", "+redrives ", "+size "),
        ],
        [_row(letter) for letter in letters],
    )
    if has_more:
        print(f"only the first {limit}; use -n for more, or filters", file=sys.stderr)


def _row(letter: DeadLetterMessage) -> tuple[object, ...]:
    return (
        letter.id,
        show_time(letter.last_failure_ms) if letter.last_failure_ms > 0 else None,
        letter.error_class or None,
        letter.attempts,
        show_data(letter.key, 30),
        None if letter.source is None else str(letter.source),
        letter.error_message[:60] or None,
        show_data(letter.payload, 40),
        letter.group or None,
        _moment(letter.first_failure_ms),
        letter.redrives,
        letter.size_bytes,
    )


async def _read(
    session: CommandSession, name: str, wanted: DeadLetterFilter, limit: int
) -> tuple[list[DeadLetterMessage], bool]:
    from contextlib import aclosing

    from penstock.client.dead_letters.open import open_dead_letters

    topic = await letters_topic(session, name)
    found: list[DeadLetterMessage] = []
    async with aclosing(open_dead_letters(session.cluster, topic, wanted)) as letters:
        async for letter in letters:
            if len(found) >= limit:
                return found, True
            found.append(letter)
    return found, False


def _list_boxes(brokers: str, format: OutputFormat) -> None:
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
        ["topic", "partitions ", "letters ", "oldest "],
        [
            (box.topic, box.partitions, box.messages, None if age is None else show_duration(age))
            for box, age in zip(boxes, ages, strict=True)
        ],
    )


# -- show -------------------------------------------------------------------------------------


@dlq.command("show")
@topic_argument
@click.argument("letter", help="PARTITION:OFFSET, as `dlq list` shows it.")
@click.option("--payload-only", is_flag=True, help="Only the payload, byte by byte.")
@brokers_option
@format_option
def show(topic: str, letter: str, payload_only: bool, brokers: str, format: OutputFormat) -> None:
    """Show one letter: what it was, where it came from, why it died.

    \b
    penstock dlq show orders.dlq 0:15
    penstock dlq show orders.dlq 0:15 --payload-only > payload.json
    """
    from penstock.client.dead_letters.message import DeadLetterFilter

    wanted = DeadLetterFilter(ids=frozenset({parse_letter(letter)}))
    letters, _ = run(brokers, lambda session: _read(session, topic, wanted, 1))
    if not letters:
        raise UserError(f"letter {letter} is not there, or was settled; see `penstock dlq list`")
    found = letters[0]
    if payload_only:
        payload = found.payload or b""
        sys.stdout.buffer.write(harmless(payload) if sys.stdout.isatty() else payload)
    elif format.is_data:
        print_data(document_of(found), format)
    else:
        _print_letter(found)


def _print_letter(letter: DeadLetterMessage) -> None:
    rows: list[tuple[str, object]] = [
        ("letter", f"{letter.topic} {letter.id}"),
        ("buried", show_time(letter.timestamp_ms)),
        ("error", letter.error_class or None),
        ("message", letter.error_message or None),
        ("group", letter.group or None),
        ("attempts", letter.attempts),
        ("first failure", _moment(letter.first_failure_ms)),
        ("last failure", _moment(letter.last_failure_ms)),
        ("redriven before", letter.redrives),
        (
            "source",
            None if letter.source is None else str(letter.source),
        ),
        ("written", _moment(letter.source_timestamp_ms)),
        ("key", show_data(letter.key, None)),
    ]
    rows += [(f"header {name}", show_data(value, None)) for name, value in letter.own_headers]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        text = "-" if value is None else printable(str(value), "\n\t")
        print(printable(name).ljust(width) + "  " + text.replace("\n", "\n" + " " * (width + 2)))
    print()
    print(printable(show_data(letter.payload, None) or "(no payload)", "\n\t"))


def _moment(at_ms: int) -> str | None:
    return show_time(at_ms) if at_ms > 0 else None


# -- stats ------------------------------------------------------------------------------------


@dlq.command("stats")
@topic_argument
@click.option(
    "--by",
    type=click.Choice(["error", "class", "key", "group", "source", "redrives"]),
    default="error",
    show_default=True,
    help="What to count by.",
)
@filter_options
@brokers_option
@format_option
def stats(topic: str, by: str, brokers: str, format: OutputFormat, **chosen: Any) -> None:
    """Count open letters by what they have in common, most frequent first.

    \b
    penstock dlq stats orders.dlq
    penstock dlq stats orders.dlq --by key --error ValueError
    """
    wanted = filter_of(**chosen)

    async def work(session: CommandSession) -> DeadLetterKinds:
        from penstock.cli.terminal.progress import Progress
        from penstock.client.dead_letters.open import open_dead_letters
        from penstock.client.dead_letters.topics import DeadLetterKinds, describe_dead_letter_topic

        name = await letters_topic(session, topic)
        total = (await describe_dead_letter_topic(session.cluster, name)).messages
        kinds = DeadLetterKinds(by)
        with Progress(f"reading {name}", total, "letters") as progress:
            async for letter in open_dead_letters(session.cluster, name, wanted):
                kinds.add(letter)
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
