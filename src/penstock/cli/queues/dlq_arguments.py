"""What the commands about dead letters share: naming a topic of them, and choosing letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.name_completion import letter_topic_names
from penstock.cli.terminal.session import CommandSession, require_topics
from penstock.cli.terminal.time_ranges import parse_times

if TYPE_CHECKING:
    from penstock.client.dead_letters.message import DeadLetterFilter, DeadLetterMessage

F = TypeVar("F", bound=Callable[..., Any])

PREVIEW_BYTES = 60

topic_argument = click.argument(
    "topic",
    shell_complete=letter_topic_names,
    help="The topic of dead letters, or the one that they came from.",
)

_OPTIONS = (
    click.option(
        "--letter", "letters", multiple=True, metavar="P:OFFSET", help="This letter; repeatable."
    ),
    click.option("--error", metavar="CLASS", help="Only of this error class; * and ? allowed."),
    click.option("--message", metavar="TEXT", help="Only with this in the error message."),
    click.option("-k", "--key", help="Only with this key."),
    click.option(
        "-H", "--header", metavar="NAME[:VALUE]", help="Only with this header, or this value of it."
    ),
    click.option(
        "--failed", metavar="@-1h", help="Only failed in this time: @-2h:-1h, @2026-11-01:1d."
    ),
    click.option(
        "--source",
        metavar="TOPIC[:P[:FROM[-TO]]]",
        help="Only from this topic, partition, offsets (TO not included).",
    ),
    click.option("--group", "by_group", help="Only given up by this group."),
    click.option(
        "--redrives-max",
        type=click.IntRange(min=0),
        help="Leave out what came back more often than this.",
    ),
)


def filter_options(command: F) -> F:
    """The options that choose letters; `filter_of` reads them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def filter_of(
    letters: tuple[str, ...],
    error: str | None,
    message: str | None,
    key: str | None,
    header: str | None,
    failed: str | None,
    source: str | None,
    by_group: str | None,
    redrives_max: int | None,
) -> DeadLetterFilter:
    """Whatever is wrong with it is said before anything is connected to."""
    from penstock.client.dead_letters.message import DeadLetterFilter

    name, colon, value = (header or "").partition(":")
    failed_from, failed_until = parse_times("--failed", failed)
    topic, partition, offsets = _source(source)
    return DeadLetterFilter(
        ids=frozenset(map(parse_letter, letters)),
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


def parse_letter(text: str) -> tuple[int, int]:
    partition, colon, offset = text.partition(":")
    if not (colon and partition.isdecimal() and offset.isdecimal()):
        raise UserError(f"{text!r} is no letter; write PARTITION:OFFSET, as `dlq list` shows it")
    return int(partition), int(offset)


def _source(text: str | None) -> tuple[str, int | None, tuple[int, int | None] | None]:
    if not text:
        return "", None, None
    topic, _, rest = text.partition(":")
    partition, _, offsets = rest.partition(":")
    first, dash, end = offsets.partition("-")
    numbers = [part for part in (partition, first, end) if part]
    if not topic or not all(part.isdecimal() for part in numbers) or (rest and not partition):
        raise UserError(f"--source {text!r}: write orders, orders:0 or orders:0:100-200")
    if not offsets:
        return topic, int(partition) if partition else None, None
    if not first:
        raise UserError(f"--source {text!r}: offsets are FROM-TO, as in orders:0:100-200")
    if not dash:
        return topic, int(partition), (int(first), int(first) + 1)
    return topic, int(partition), (int(first), int(end) if end else None)


async def letters_topic(session: CommandSession, name: str) -> str:
    """The topic of dead letters that is meant: `orders` also names `orders.dlq`."""
    from penstock.client.dead_letters.open import SUFFIX
    from penstock.client.dead_letters.topics import dead_letter_topic_names

    if not name.endswith(SUFFIX):
        await session.cluster.refresh(None)
        if name + SUFFIX in session.cluster.metadata.topics:
            return name + SUFFIX
    await require_topics(session, [name])
    if not name.endswith(SUFFIX) and name not in await dead_letter_topic_names(session.cluster):
        raise UserError(
            f"there are no dead letters of {name!r}: topic {name + SUFFIX!r} comes with the first "
            "one; see `penstock dlq list`"
        )
    return name


def show_data(data: bytes | None, limit: int | None = PREVIEW_BYTES) -> str | None:
    """Text as it is, anything else as hex; cut where it is only a preview."""
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
    """At most so many bytes, without part of a character at the end."""
    if len(data) <= limit:
        return data
    end = limit
    while end > max(0, limit - 4) and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end]


def document_of(letter: DeadLetterMessage, *, is_whole: bool = True) -> dict[str, object]:
    """A letter for programs: payload as text where it is text, else in base64."""
    import base64

    source = letter.source
    document: dict[str, object] = {
        "letter": letter.id,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp_ms": letter.timestamp_ms,
        "key": None if letter.key is None else letter.key.decode("utf-8", "replace"),
        "error_class": letter.error_class,
        "error_message": letter.error_message,
        "group": letter.group,
        "attempts": letter.attempts,
        "first_failure_ms": letter.first_failure_ms,
        "last_failure_ms": letter.last_failure_ms,
        "redrives": letter.redrives,
        "source": None if source is None else source._asdict(),
        "source_timestamp_ms": letter.source_timestamp_ms,
        "size_bytes": letter.size_bytes,
    }
    if is_whole:
        document["headers"] = [
            [name, None if value is None else value.decode("utf-8", "replace")]
            for name, value in letter.own_headers
        ]
        try:
            document["payload"] = None if letter.payload is None else letter.payload.decode()
        except UnicodeDecodeError:
            document["payload_base64"] = base64.b64encode(letter.payload or b"").decode()
    return document
