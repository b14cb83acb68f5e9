"""`penstock produce`: writes lines of standard input, or one payload, as records.

Each line is a record; with `-K` its key precedes the first delimiter. The command waits until the
brokers have acknowledged all records, and prints their offsets. At a terminal it says how to end
the input, and shows no progress bar.

Asynchronous lines of standard input, each as soon as it is complete. `tail -f log | penstock
produce t` must send a line when it is written, not when a buffer is full. Ctrl-C must end the
command although the terminal sends no input. So the event loop waits for terminals and pipes;
files are always ready and are read directly.
"""

from __future__ import annotations

import io
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.name_completion import topic_names
from penstock.cli.terminal.output import OutputFormat, format_option, print_data
from penstock.cli.terminal.session import (
    CommandSession,
    brokers_option,
    nearest,
    require_topics,
    run,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from penstock.client.producer.producer import PendingRecord


_CHUNK_BYTES = 64 * 1024
LINE_BYTES_MAX = 64 << 20


async def read_lines() -> AsyncIterator[bytes]:
    """Yields the lines without line ends; the last line may lack one."""
    rest = b""
    async for chunk in _chunks():
        *lines, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
        for line in lines:
            yield line
        if len(rest) > LINE_BYTES_MAX:
            raise UserError(
                f"a line is longer than {LINE_BYTES_MAX >> 20} MiB; send binary data with --file"
            )
    if rest:
        yield rest


def _hint(text: str) -> None:
    """Tells a user at a terminal what the command waits for."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        print(f"penstock: {text}", file=sys.stderr, flush=True)


async def _chunks() -> AsyncIterator[bytes]:
    try:
        descriptor = sys.stdin.fileno()
    except (io.UnsupportedOperation, ValueError):
        # Not a real file, as when a program replaces sys.stdin.
        yield sys.stdin.buffer.read()
        return
    while True:
        await _readable(descriptor)
        chunk = os.read(descriptor, _CHUNK_BYTES)
        if not chunk:
            return
        yield chunk


async def _readable(descriptor: int) -> None:
    import asyncio

    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except PermissionError:
        await asyncio.sleep(0)  # A file or /dev/null is always ready. Let the sender run.
        return
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


# Limit of records sent before the command awaits their acknowledgements.
_DELIVERIES_MAX = 10_000


TYPO = 0.8
"""Similarity from which a new topic's name is probably a typo of an existing one."""
ACKS = {"all": -1, "1": 1, "0": 0}
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

codec_option = click.option(
    "-z",
    "--codec",
    type=click.Choice(CODECS),
    default="none",
    show_default=True,
    help="Compression of the batches.",
)
acks_option = click.option(
    "--acks",
    type=click.Choice(list(ACKS)),
    default="all",
    show_default=True,
    help="Replicas that must acknowledge a record.",
)
linger_option = click.option(
    "--linger-ms",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    help="Time to wait for a batch to fill.",
)


@dataclass(frozen=True)
class InputLine:
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class ProducePlan:
    """Parsed command line of `produce`."""

    topic: str
    partition: int | None
    headers: tuple[tuple[str, bytes | None], ...]
    count: int
    is_typed: bool = False
    """True if a user types the records: a progress bar would be drawn over them."""


@click.command("produce", short_help="Write records to a topic.")
@click.argument("topic", help="The topic to write to.", shell_complete=topic_names)
@click.argument(
    "payload", required=False, help="A record's value [a record per line of standard input]."
)
@click.option("-k", "--key", help="The key of every record.")
@click.option("-K", "--key-delimiter", help="Delimiter of key and value in each line.")
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME:VALUE",
    help="A record header; repeatable.",
)
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Send the whole file, unchanged, as one record; - is standard input.",
)
@click.option("--delay", metavar="5m", help="Queues: delivery delay: 500ms, 30s, 1h30m.")
@click.option(
    "--priority", type=click.IntRange(0, 9), help="Queues: 9 is delivered first, 0 is the default."
)
@click.option("-p", "--partition", type=int, help="Write to this partition, whatever the key.")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Send each record this many times.",
)
@click.option(
    "-Z",
    "--tombstone",
    is_flag=True,
    help="Send null for an empty value; with -k alone, one tombstone.",
)
@codec_option
@acks_option
@linger_option
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    help="Seconds after which a record fails.",
)
@brokers_option
@format_option
def produce(
    topic: str,
    payload: str | None,
    key: str | None,
    key_delimiter: str | None,
    headers: tuple[str, ...],
    path: str | None,
    delay: str | None,
    priority: int | None,
    partition: int | None,
    count: int,
    tombstone: bool,
    codec: str,
    acks: str,
    linger_ms: float,
    timeout_s: float,
    brokers: str,
    format: OutputFormat,
) -> None:
    """Write records to a topic, and print their offsets once they are acknowledged.

    \b
    echo hello | penstock produce greetings
    printf 'a:1\\nb:2\\n' | penstock produce orders -K :
    penstock produce orders '{"id": 7}' -k 7 -H source:cli
    penstock produce jobs '{"to": "ann"}' --delay 15m --priority 9
    penstock produce photos --file photo.jpg -k ann
    """
    if path is not None and (payload is not None or key_delimiter is not None):
        raise UserError("--file is the whole value: leave out the payload and -K")
    if key_delimiter is not None and (key is not None or not key_delimiter):
        raise UserError("-K takes the key from each line: give it a delimiter and leave out -k")
    queued = queue_headers(delay, priority)
    is_typed = payload is None and path in (None, "-") and sys.stdin.isatty()
    plan = ProducePlan(topic, partition, (*map(parse_header, headers), *queued), count, is_typed)
    fixed = None if key is None else key.encode()
    if path is not None:
        lines = file_of(path, fixed)
    else:
        lines = records_of(payload, fixed, _unescape(key_delimiter), tombstone)

    async def work(session: CommandSession) -> dict[int, list[int]]:
        from penstock.client.producer.producer import ProducerConfig
        from penstock.wire.compression import Codec

        config = ProducerConfig(
            acks=ACKS[acks],
            codec=Codec[codec.upper()],
            linger_ms=linger_ms,
            delivery_timeout_ms=int(timeout_s * 1000),
        )
        return await send_all(session, config, plan, lines)

    report(topic, run(brokers, work), format)


async def send_all(
    session: CommandSession, config: object, plan: ProducePlan, lines: AsyncIterator[InputLine]
) -> dict[int, list[int]]:
    """Sends all and awaits the acknowledgements; returns offsets and count by partition."""
    from penstock.base.errors import ErrorCode, Refused
    from penstock.cli.terminal.progress import Progress
    from penstock.client.producer.producer import ProducerConfig

    assert isinstance(config, ProducerConfig)
    written: dict[int, list[int]] = {}
    waiting: list[PendingRecord] = []
    meant = await _likely_meant(session, plan.topic)
    shown = Progress.silent() if plan.is_typed else Progress(f"producing to {plan.topic}")
    with shown as progress:
        async with session.producer(config) as producer:
            async for line in lines:
                for _ in range(plan.count):
                    try:
                        delivery = await producer.send(
                            plan.topic,
                            line.value,
                            line.key,
                            partition=plan.partition,
                            headers=plan.headers,
                        )
                    except Refused as refused:
                        if refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                            await require_topics(session, [plan.topic])
                        raise
                    waiting.append(delivery)
                    if len(waiting) >= _DELIVERIES_MAX:
                        await confirm_all(waiting, written)
                progress.advance(plan.count)
            await producer.flush()
            await confirm_all(waiting, written)
    if meant is not None and written:
        print(
            f"penstock: this created topic {plan.topic!r}; did you mean {meant!r}?",
            file=sys.stderr,
        )
    return written


async def _likely_meant(session: CommandSession, name: str) -> str | None:
    """Returns a similar topic if `name` does not exist: a write creates topics, typos included."""
    from penstock.base.errors import ErrorCode

    await session.cluster.refresh((name,))
    if session.cluster.metadata.errors.get(name) is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    await session.cluster.refresh(None)
    return nearest(name, session.cluster.metadata.topics, TYPO)


async def confirm_all(waiting: list[PendingRecord], written: dict[int, list[int]]) -> None:
    """Collects the offsets. If records were refused, raises the first refusal with their number."""
    from penstock.base.errors import Refused

    refusals: list[Refused] = []
    for delivery in waiting:
        try:
            sent = await delivery
        except Refused as refused:
            refusals.append(refused)
            continue
        seen = written.setdefault(sent.partition, [sent.offset, sent.offset, 0])
        seen[0] = min(seen[0], sent.offset)
        seen[1] = max(seen[1], sent.offset)
        seen[2] += 1
    waiting.clear()
    total = len(refusals) + sum(count for _, _, count in written.values())
    if refusals and total > 1:
        first = refusals[0]
        lost = f"{len(refusals):,} of {total:,} records were not written"
        raise Refused(first.code, f"{str(first).rstrip('.')} ({lost})") from first
    if refusals:
        raise refusals[0]


async def records_of(
    payload: str | None, key: bytes | None, delimiter: bytes | None, tombstone: bool
) -> AsyncIterator[InputLine]:
    """Yields the records to send, before they are repeated."""

    if payload is not None:
        yield split_line(payload.encode(), key, delimiter, tombstone)
    elif tombstone and key is not None and delimiter is None:
        yield InputLine(key, None)
    else:
        _hint("type one record per line; Ctrl-D ends the input")
        async for raw in read_lines():
            yield split_line(raw, key, delimiter, tombstone)


async def file_of(path: str, key: bytes | None) -> AsyncIterator[InputLine]:
    """Yields the file as one record; reads it once, after connecting."""
    if path == "-":
        _hint("type the record; Ctrl-D ends it")
    with click.open_file(path, "rb") as file:
        yield InputLine(key, file.read())


def split_line(
    raw: bytes, key: bytes | None, delimiter: bytes | None, tombstone: bool
) -> InputLine:
    value: bytes | None = raw
    if delimiter is not None:
        head, found, rest = raw.partition(delimiter)
        if found:
            key, value = head, rest
    return InputLine(key, None if tombstone and not value else value)


def parse_header(text: str) -> tuple[str, bytes | None]:
    """Parses `name:value`; `name` alone is a header without a value."""
    name, colon, value = text.partition(":")
    if not name:
        raise UserError(f"-H {text!r} has no name; write -H name:value")
    return name, value.encode() if colon else None


def queue_headers(delay: str | None, priority: int | None) -> list[tuple[str, bytes]]:
    """Returns the record headers by which queues delay and prioritize."""
    from penstock.client.offset_syntax import OffsetSyntaxError, duration_ms
    from penstock.state.queues.delivery_headers import DELAY_MS, PRIORITY

    found = []
    if delay is not None:
        try:
            found.append((DELAY_MS, b"%d" % duration_ms(delay)))
        except OffsetSyntaxError as error:
            raise UserError(f"--delay {error}") from None
    if priority is not None:
        found.append((PRIORITY, b"%d" % priority))
    return found


def _unescape(delimiter: str | None) -> bytes | None:
    if delimiter is None:
        return None
    return delimiter.replace("\\t", "\t").replace("\\n", "\n").encode()


def report(topic: str, written: dict[int, list[int]], format: OutputFormat) -> None:
    total = sum(count for _, _, count in written.values())
    rows = [
        {"partition": p, "first_offset": first, "last_offset": last, "count": count}
        for p, (first, last, count) in sorted(written.items())
    ]
    if format.is_data:
        print_data({"topic": topic, "count": total, "partitions": rows}, format)
        return
    places = ", ".join(
        f"partition {p} offset {first}"
        if first == last
        else f"partition {p} offsets {first}-{last}"
        for p, (first, last, _) in sorted(written.items())
    )
    noun = "record" if total == 1 else "records"
    print(f"produced {total} {noun} to {topic}" + (f": {places}" if places else ""))
