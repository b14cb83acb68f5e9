"""`penstock consume`: prints the records of topics, like kcat and rpk.

It follows the topic forever, like both of them, unless the range has an end, `-n` is reached or
`-e` is given. It commits no offsets, unless `-g` names a group (`consume_group`). The syntax of
`-o` is in `penstock.client.offset_syntax`, that of `-f` in `penstock.cli.terminal.output_template`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.name_completion import group_names, topic_names
from penstock.cli.terminal.output import OutputFormat, format_option
from penstock.cli.terminal.output_template import (
    DEFAULT,
    META,
    WIDE,
    as_json,
    as_yaml,
    compile_template,
)
from penstock.cli.terminal.progress import Progress
from penstock.cli.terminal.session import CommandSession, brokers_option, require_topics, run

if TYPE_CHECKING:
    from penstock.client.consumer.fetched import FetchedRecord
    from penstock.client.list_offsets import OffsetSpan
    from penstock.client.metadata import TopicPartition


@dataclass(frozen=True)
class ConsumePlan:
    """Parsed command line of `consume`."""

    topics: list[str]
    offsets: str
    partitions: list[int] | None
    limit: int | None
    follow: bool
    committed: bool


@click.command("consume")
@click.argument(
    "topics", nargs=-1, required=True, help="The topics to read.", shell_complete=topic_names
)
@click.option(
    "-o",
    "--offset",
    default="start",
    show_default=True,
    help="Range: start, end, 5, +10, -10, 5:9, :end, @-1h, @2026-11-01:end.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=int,
    multiple=True,
    help="Only this partition; repeatable.",
)
@click.option(
    "-g",
    "--group",
    help="Read as a member of this group, from its committed offsets, and commit offsets.",
    shell_complete=group_names,
)
@click.option("-n", "--num", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option(
    "-F/-e",
    "--follow/--no-follow",
    default=True,
    help="Wait for more records at the end (default), or stop there.",
)
@click.option(
    "-f",
    "--template",
    show_default=DEFAULT,
    help="Output template: %t %p %o %k %v %h %T %d; %v{hex}, {base64}, {json}; \\n \\t.",
)
@click.option(
    "--meta-only", is_flag=True, help="Print offsets, timestamps, sizes and keys, no values."
)
@click.option("--committed", is_flag=True, help="Read only committed records (read_committed).")
@brokers_option
@format_option
def consume(
    topics: tuple[str, ...],
    offset: str,
    partitions: tuple[int, ...],
    group: str | None,
    num: int | None,
    follow: bool,
    template: str | None,
    meta_only: bool,
    committed: bool,
    brokers: str,
    format: OutputFormat,
) -> None:
    """Read records of topics, from the start, and follow them.

    \b
    penstock consume orders -o -10 -e
    penstock consume orders -o @-1h -f '%p:%o %k %v\\n'
    penstock consume orders -o @2026-11-01:2026-11-02 --format json
    penstock consume photos --meta-only -o -5 -e
    penstock consume orders -g billing -n 100
    """
    if meta_only and template is not None:
        raise UserError("-f and --meta-only exclude each other; leave out %v in the template")
    render = _renderer(format, META if meta_only else template or DEFAULT, meta_only)
    plan = ConsumePlan(list(topics), offset, list(partitions) or None, num, follow, committed)
    # Refuses invalid offsets before connecting.
    _parse(plan.offsets)
    if group is not None:
        from penstock.cli.data.consume_group import check_plan, read_as_member

        check_plan(plan)

    async def work(session: CommandSession) -> None:
        out = sys.stdout.buffer
        if group is not None:
            await read_as_member(session, plan, group, render, out.write, out.flush)
        else:
            await read(session, plan, render, out.write, out.flush)

    run(brokers, work)


def _renderer(
    format: OutputFormat, template: str, meta_only: bool
) -> Callable[[FetchedRecord], bytes]:
    is_seen = sys.stdout.isatty()
    match format:
        case OutputFormat.json:
            return partial(as_json, has_value=not meta_only, is_seen=is_seen)
        case OutputFormat.yaml:
            return partial(as_yaml, has_value=not meta_only)
        case OutputFormat.wide:
            return compile_template(META if meta_only else WIDE, is_seen=is_seen)
        case _:
            return compile_template(template, is_seen=is_seen)


async def read(
    session: CommandSession,
    plan: ConsumePlan,
    render: Callable[[FetchedRecord], bytes],
    write: Callable[[bytes], object],
    flush: Callable[[], object],
) -> None:
    from penstock.client.consumer.consumer import ConsumerConfig

    spans = await _resolve(session, plan)
    left = plan.limit
    config = ConsumerConfig(isolation_level=int(plan.committed), reset=None)
    with _progress(plan, spans) as progress:
        async with session.consumer(config) as consumer:
            consumer.assign({where: span.start for where, span in spans.items()})
            _drop_finished(consumer.positions, spans, consumer.unassign)
            while consumer.positions:
                for fetched in await consumer.fetch():
                    end = spans[fetched.where].end
                    progress.advance(max(0, fetched.next_offset - fetched.offset))
                    for message in fetched.messages():
                        if end is not None and message.offset >= end:
                            break
                        write(render(message))
                        if left is not None:
                            left -= 1
                            if left == 0:
                                flush()
                                return
                flush()
                _drop_finished(consumer.positions, spans, consumer.unassign)


def _progress(
    plan: ConsumePlan, spans: dict[TopicPartition, OffsetSpan]
) -> AbstractContextManager[Progress]:
    """Returns a progress, shown if the output is not a terminal and the range has an end."""
    total = sum((span.end or span.start) - span.start for span in spans.values())
    is_seen = sys.stdout.isatty() or plan.limit is not None
    if is_seen or any(span.end is None for span in spans.values()):
        return nullcontext(Progress.silent())
    return Progress(f"reading {', '.join(plan.topics)}", total, "offsets")


def _drop_finished(
    positions: object,
    spans: dict[TopicPartition, OffsetSpan],
    drop: Callable[[TopicPartition], None],
) -> None:
    assert isinstance(positions, dict)
    for where, position in list(positions.items()):
        end = spans[where].end
        if end is not None and position >= end:
            drop(where)


async def _resolve(session: CommandSession, plan: ConsumePlan) -> dict[TopicPartition, OffsetSpan]:
    from penstock.client.list_offsets import partitions_of, resolve
    from penstock.client.offset_syntax import parse_offsets

    await require_topics(session, plan.topics)
    wanted = parse_offsets(plan.offsets, session.clock.now_ms())
    spans: dict[TopicPartition, OffsetSpan] = {}
    for topic in dict.fromkeys(plan.topics):
        places = await partitions_of(session.cluster, topic, plan.partitions)
        spans |= await resolve(
            session.cluster,
            places,
            wanted,
            isolation_level=int(plan.committed),
            must_end=not plan.follow,
        )
    return spans


def _parse(text: str) -> None:
    from penstock.base.ids import Millis
    from penstock.client.offset_syntax import OffsetSyntaxError, parse_offsets

    try:
        parse_offsets(text, Millis(0))
    except OffsetSyntaxError as error:
        raise UserError(f"-o {error}") from None
