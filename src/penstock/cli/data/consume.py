"""`penstock consume`: prints the records of topics, like kcat and rpk.

It follows the topic forever, like both of them, unless the range has an end, `-n` is reached or
`-e` is given. It commits no offsets, unless `-g` names a group. The syntax of
`-o` is in `penstock.client.offset_syntax`, that of `-f` in `penstock.cli.terminal.output_template`.

`penstock consume -g`: reads as a member of a consumer group, like rpk and kcat -G. The group's
coordinator assigns partitions (KIP-848) and revokes them when other members join. An offset is
committed after the records before it were printed: about every second, when a partition is
revoked, and at the end, also after Ctrl-C. So the members of the group print every record at
least once; after a crash some records are printed again. `-o` sets the start of partitions
without a committed offset.
"""

from __future__ import annotations

import sys
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
    from collections.abc import Callable

    from penstock.client.consumer.consumer import Consumer
    from penstock.client.consumer.fetched import FetchedRecord
    from penstock.client.consumer.group_member import GroupMember
    from penstock.client.list_offsets import OffsetSpan
    from penstock.client.metadata import TopicPartition
    from penstock.client.offset_syntax import OffsetPosition


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


COMMIT_SECONDS = 1.0
POLL_SECONDS = 0.05
HINT_SECONDS = 3.0
"""Time without a partition after which the command prints a hint."""


def check_plan(plan: ConsumePlan) -> None:
    """Raises UserError for options that cannot be combined with a group."""
    from penstock.base.ids import Millis
    from penstock.client.offset_syntax import OffsetSyntaxError, parse_position

    if plan.partitions is not None:
        raise UserError("-g lets the group assign the partitions: leave out -p")
    try:
        parse_position(plan.offsets, Millis(0))
    except OffsetSyntaxError as error:
        raise UserError(
            f"-o {error}: with -g it is the start of partitions without a committed offset"
        ) from None


async def read_as_member(
    session: CommandSession,
    plan: ConsumePlan,
    group: str,
    render: Callable[[FetchedRecord], bytes],
    write: Callable[[bytes], object],
    flush: Callable[[], object],
) -> None:
    """Reads until `-n` records are printed or, with `-e`, the initial ends are reached."""
    from penstock.cli.terminal.session import require_topics
    from penstock.client.consumer.consumer import ConsumerConfig
    from penstock.client.consumer.group_member import GroupListener, GroupMember
    from penstock.client.list_offsets import EARLIEST, LATEST
    from penstock.client.offset_syntax import END, parse_position

    await require_topics(session, plan.topics)
    begin = parse_position(plan.offsets, session.clock.now_ms())
    config = ConsumerConfig(
        isolation_level=int(plan.committed), reset=LATEST if begin == END else EARLIEST
    )
    async with session.consumer(config) as consumer:
        reading = GroupReading(session, plan, group, begin, consumer)
        listener = GroupListener(
            reading.assigned, reading.revoked, reading.lost, reading.member_failed
        )
        member = reading.member = GroupMember(session.cluster, group, plan.topics, listener)
        try:
            await member.join()
            await reading.run(render, write, flush)
        finally:
            try:
                await reading.commit()
            finally:
                await member.leave()


class GroupReading:
    """Assigned partitions of a member, with its printed and committed offsets."""

    def __init__(
        self,
        session: CommandSession,
        plan: ConsumePlan,
        group: str,
        begin: OffsetPosition,
        consumer: Consumer,
    ) -> None:

        self.member: GroupMember | None = None
        self._session = session
        self._plan = plan
        self._group = group
        self._begin = begin
        self._consumer = consumer
        self._printed: dict[TopicPartition, int] = {}
        """Offsets after the printed records, not committed yet."""
        self._ends: dict[TopicPartition, int] = {}
        """With `-e`: end offset of each partition when it was assigned."""
        self._committed_s = self._now_s()
        self._failure: Exception | None = None

    def _now_s(self) -> float:
        import asyncio

        return asyncio.get_running_loop().time()

    async def run(
        self,
        render: Callable[[FetchedRecord], bytes],
        write: Callable[[bytes], object],
        flush: Callable[[], object],
    ) -> None:
        import asyncio

        left = self._plan.limit
        hint_s = self._now_s() + HINT_SECONDS
        while not self._is_through():
            if self._failure is not None:
                raise self._failure
            if not self._consumer.positions:
                if self._now_s() >= hint_s:
                    hint_s = float("inf")
                    print(
                        f"penstock: other members of group {self._group!r} read all partitions; "
                        "waiting for one",
                        file=sys.stderr,
                    )
                await asyncio.sleep(POLL_SECONDS)
                continue
            hint_s = float("inf")
            # No await between here and the flush: a partition revoked later was printed.
            for fetched in await self._consumer.fetch():
                if fetched.where not in self._consumer.positions:
                    continue
                for message in fetched.messages():
                    write(render(message))
                    if left is not None:
                        left -= 1
                        if left == 0:
                            flush()
                            self._printed[fetched.where] = message.offset + 1
                            return
                flush()
                self._printed[fetched.where] = fetched.next_offset
            if self._now_s() - self._committed_s >= COMMIT_SECONDS:
                await self.commit()

    def _is_through(self) -> bool:
        positions = self._consumer.positions
        if self._plan.follow or not positions:
            return False
        return all(positions[where] >= end for where, end in self._ends.items())

    async def commit(self) -> None:
        """Commits the offsets of what was printed."""
        printed, self._printed = self._printed, {}
        self._committed_s = self._now_s()
        if printed:
            assert self.member is not None
            await self.member.commit(printed)

    # Callbacks of the group membership.

    async def assigned(self, added: list[TopicPartition]) -> None:
        from penstock.client.committed_offsets import committed_offsets
        from penstock.client.list_offsets import LATEST, list_offsets, resolve
        from penstock.client.offset_syntax import OffsetRange

        cluster, isolation = self._session.cluster, int(self._plan.committed)
        known = await committed_offsets(cluster, self._group)
        starts = {where: known[where].offset for where in added if where in known}
        missing = [where for where in added if where not in starts]
        if missing:
            spans = await resolve(
                cluster, missing, OffsetRange(self._begin), isolation_level=isolation
            )
            starts |= {where: span.start for where, span in spans.items()}
        if not self._plan.follow:
            wanted = dict.fromkeys(added, LATEST)
            ends = await list_offsets(cluster, wanted, isolation_level=isolation)
            self._ends |= {where: found.offset for where, found in ends.items()}
        self._consumer.assign({**self._consumer.positions, **starts})

    async def revoked(self, gone: list[TopicPartition]) -> None:
        for where in gone:
            self._consumer.unassign(where)
            self._ends.pop(where, None)
        await self.commit()

    def lost(self) -> None:
        """Drops all partitions: other members own them and continue at the committed offsets."""
        self._consumer.assign({})
        self._printed.clear()
        self._ends.clear()

    def member_failed(self, error: Exception) -> None:
        self._failure = error
