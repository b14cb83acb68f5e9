"""Arguments of the dead-letter commands: a dead-letter topic, and filters of its messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.name_completion import dead_letter_topic_names
from penstock.cli.terminal.session import CommandSession, require_topics
from penstock.cli.terminal.time_ranges import parse_times

if TYPE_CHECKING:
    from penstock.client.dead_letters.filters import DeadLetterFilter
    from penstock.client.dead_letters.message import DeadLetterMessage

F = TypeVar("F", bound=Callable[..., Any])

PREVIEW_BYTES = 60

topic_argument = click.argument(
    "topic",
    shell_complete=dead_letter_topic_names,
    help="The dead-letter topic, or its source topic.",
)

_OPTIONS = (
    click.option(
        "--id", "ids", multiple=True, metavar="P:OFFSET", help="Only this message; repeatable."
    ),
    click.option("--letter", "former_ids", multiple=True, hidden=True, help="Now --id."),
    click.option("--error", metavar="CLASS", help="Only this error class; * and ? are wildcards."),
    click.option("--message", metavar="TEXT", help="Only error messages containing this."),
    click.option("-k", "--key", help="Only this key."),
    click.option(
        "-H",
        "--header",
        metavar="NAME[:VALUE]",
        help="Only with this header, or this header value.",
    ),
    click.option(
        "--failed", metavar="@-1h", help="Only failed in this time range: @-2h:-1h, @2026-11-01:1d."
    ),
    click.option(
        "--source",
        metavar="TOPIC[:P[:FROM[-TO]]]",
        help="Only from this topic, partition and offsets (TO is exclusive).",
    ),
    click.option("--group", "by_group", help="Only dead-lettered by this group."),
    click.option(
        "--redrives-max",
        type=click.IntRange(min=0),
        help="Only redriven at most this many times.",
    ),
)


def filter_options(command: F) -> F:
    """Adds the filter options; `filter_of` parses them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def filter_of(
    ids: tuple[str, ...],
    former_ids: tuple[str, ...],
    error: str | None,
    message: str | None,
    key: str | None,
    header: str | None,
    failed: str | None,
    source: str | None,
    by_group: str | None,
    redrives_max: int | None,
) -> DeadLetterFilter:
    """Parses the filter options, and reports errors before connecting."""
    from penstock.client.dead_letters.filters import DeadLetterFilter

    name, colon, value = (header or "").partition(":")
    failed_from, failed_until = parse_times("--failed", failed)
    topic, partition, offsets = _source(source)
    return DeadLetterFilter(
        ids=frozenset(map(parse_message_id, (*ids, *former_ids))),
        error_class=error or "",
        error_text=message or "",
        key=None if key is None else key.encode(),
        header=(name, value.encode() if colon else None) if header else None,
        failed_from_ms=failed_from,
        failed_until_ms=failed_until,
        source_topic=topic,
        source_partition=partition,
        source_offsets=offsets,
        group=by_group or "",
        redrives_max=redrives_max,
    )


def parse_message_id(text: str) -> tuple[int, int]:
    partition, colon, offset = text.partition(":")
    if not (colon and partition.isdecimal() and offset.isdecimal()):
        raise UserError(
            f"{text!r} is not a message id; write PARTITION:OFFSET, as `dlq list` shows it"
        )
    return int(partition), int(offset)


def _source(text: str | None) -> tuple[str, int | None, tuple[int, int | None] | None]:
    if not text:
        return "", None, None
    topic, _, rest = text.partition(":")
    partition, _, offsets = rest.partition(":")
    first, dash, end = offsets.partition("-")
    numbers = [part for part in (partition, first, end) if part]
    if not topic or not all(part.isdecimal() for part in numbers) or (rest and not partition):
        raise UserError(f"--source {text!r} is invalid; write orders, orders:0 or orders:0:100-200")
    if not offsets:
        return topic, int(partition) if partition else None, None
    if not first:
        raise UserError(f"--source {text!r} lacks FROM-TO offsets; write orders:0:100-200")
    if not dash:
        return topic, int(partition), (int(first), int(first) + 1)
    return topic, int(partition), (int(first), int(end) if end else None)


async def dead_letter_topic(session: CommandSession, name: str) -> str:
    """Returns the dead-letter topic for a name: `orders` also stands for `orders.dlq`."""
    from penstock.client.dead_letters.open_messages import SUFFIX
    from penstock.client.dead_letters.topics import dead_letter_topic_names

    if not name.endswith(SUFFIX):
        await session.cluster.refresh(None)
        if name + SUFFIX in session.cluster.metadata.topics:
            return name + SUFFIX
    await require_topics(session, [name])
    if not name.endswith(SUFFIX) and name not in await dead_letter_topic_names(session.cluster):
        raise UserError(
            f"{name!r} has no dead letters; the first one creates topic {name + SUFFIX!r}. See "
            "`penstock dlq list`"
        )
    return name


def show_data(data: bytes | None, limit: int | None = PREVIEW_BYTES) -> str | None:
    """Shows UTF-8 as text and other data as hex, truncated to `limit` bytes."""
    if data is None:
        return None
    part = data if limit is None else _cut(data, limit)
    try:
        text = part.decode()
        text = text if limit is None else " ".join(text.split())
        is_text = text.isprintable() or limit is None
    except UnicodeDecodeError:
        is_text, text = False, ""
    shown = text if is_text else "0x" + part.hex()
    return shown + ("…" if len(part) < len(data) else "")


def _cut(data: bytes, limit: int) -> bytes:
    """Truncates UTF-8 data without splitting a character."""
    if len(data) <= limit:
        return data
    end = limit
    while end > max(0, limit - 4) and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end]


def document_of(message: DeadLetterMessage, *, is_whole: bool = True) -> dict[str, object]:
    """Returns the message as a document: payload as text if it is UTF-8, else in base64."""
    import base64

    source = message.source
    document: dict[str, object] = {
        "letter": message.id,
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp_ms": message.timestamp_ms,
        "key": None if message.key is None else message.key.decode("utf-8", "replace"),
        "error_class": message.error_class,
        "error_message": message.error_message,
        "group": message.group,
        "attempts": message.attempts,
        "first_failure_ms": message.first_failure_ms,
        "last_failure_ms": message.last_failure_ms,
        "redrives": message.redrives,
        "source": None if source is None else source._asdict(),
        "source_timestamp_ms": message.source_timestamp_ms,
        "size_bytes": message.size_bytes,
    }
    if is_whole:
        document["traceback"] = message.traceback
        document["headers"] = [
            [name, None if value is None else value.decode("utf-8", "replace")]
            for name, value in message.own_headers
        ]
        try:
            document["payload"] = None if message.payload is None else message.payload.decode()
        except UnicodeDecodeError:
            document["payload_base64"] = base64.b64encode(message.payload or b"").decode()
    return document
