"""`penstock txn`: lists, describes and aborts transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.terminal.confirm import confirm, yes_option
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.output import (
    OutputFormat,
    format_option,
    print_data,
    print_listing,
    print_rows,
    print_table,
    printable,
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
    from penstock.client.admin.transactions import HangingCandidate, TxnInfo, TxnListing
    from penstock.client.metadata import TopicPartition

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
HANGING_MS = 15 * 60_000
"""Kafka's default maximum transaction timeout; a shorter silence is not evidence of hanging."""


@click.group("txn", no_args_is_help=True)
def txn() -> None:
    """Inspect transactions, and abort those whose producer is gone."""


@txn.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES, case_sensitive=False),
    multiple=True,
    help="Only transactions in this state; repeatable.",
)
@click.option(
    "--producer-id", "producer_ids", type=int, multiple=True, help="Only this producer; repeatable."
)
@click.option("--older", metavar="DURATION", help="Only transactions older than this, e.g. 10m.")
@click.option(
    "--hanging",
    is_flag=True,
    help="Open transactions that no coordinator will end, without a write for --older [15m].",
)
@click.option("-t", "--topic", "topics", multiple=True, help="With --hanging: only this topic.")
@brokers_option
@format_option
def list_command(
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    older: str | None,
    hanging: bool,
    topics: tuple[str, ...],
    brokers: str,
    format: OutputFormat,
) -> None:
    """List transactional ids with their states, or hanging transactions.

    \b
    penstock txn list --state ongoing --older 5m
    penstock txn list --hanging -t orders
    """
    older_ms = _duration(older)
    if hanging:
        if states:
            raise UserError("use only one of --hanging and --state: hanging ones have no state")
        _list_hanging(topics, producer_ids, older_ms, brokers, format)
        return
    if topics:
        raise UserError(
            "-t works with --hanging only; `penstock txn describe` shows a transaction's topics"
        )

    async def work(session: CommandSession) -> list[TxnListing]:
        from penstock.client.admin.transactions import list_transactions

        return await list_transactions(
            session.cluster, states=states, producer_ids=producer_ids, older_ms=older_ms
        )

    rows = [
        (t.transactional_id, t.state, t.producer_id, t.coordinator_id) for t in run(brokers, work)
    ]
    keys = ("transactional_id", "state", "producer_id", "coordinator")
    print_rows(format, keys, ["transactional id", "state", "producer ", "coordinator "], rows)


def _duration(text: str | None) -> int | None:
    from penstock.client.offset_syntax import OffsetSyntaxError, duration_ms

    try:
        return None if text is None else duration_ms(text)
    except OffsetSyntaxError as error:
        raise UserError(f"--older {error}") from None


def _list_hanging(
    topics: tuple[str, ...],
    producer_ids: tuple[int, ...],
    older_ms: int | None,
    brokers: str,
    format: OutputFormat,
) -> None:
    async def work(session: CommandSession) -> list[HangingCandidate]:
        from penstock.client.admin.transactions import hanging_transactions
        from penstock.client.list_offsets import partitions_of

        await require_topics(session, topics)
        if not topics:
            await session.cluster.refresh(None)
        places: list[TopicPartition] = []
        for topic in topics or sorted(session.cluster.metadata.topics):
            places += await partitions_of(session.cluster, topic)
        return await hanging_transactions(
            session.cluster,
            places,
            now_ms=session.clock.now_ms(),
            older_ms=HANGING_MS if older_ms is None else older_ms,
        )

    found = [t for t in run(brokers, work) if not producer_ids or t.producer_id in producer_ids]
    print_listing(
        format,
        [_open_document(row) for row in found],
        ["topic", "partition ", "start offset ", "producer ", "epoch ", "last written"],
        [
            (
                *row.where,
                row.start_offset,
                row.producer_id,
                row.producer_epoch,
                show_time(row.last_written_ms),
            )
            for row in found
        ],
    )


@txn.command("describe")
@click.argument("names", nargs=-1, required=True, help="Transactional ids.")
@brokers_option
@format_option
def describe(names: tuple[str, ...], brokers: str, format: OutputFormat) -> None:
    """Show state, producer, age and partitions of transactions.

    \b
    penstock txn describe copier-0
    penstock txn describe copier-0 --format json
    """

    async def work(session: CommandSession) -> list[tuple[TxnInfo, list[HangingCandidate]]]:
        return [await _describe(session, name) for name in dict.fromkeys(names)]

    from penstock.runtime.clock import SystemClock

    found = run(brokers, work)
    now_ms = SystemClock().now_ms()
    if format.is_data:
        print_data([_document(info, opened, now_ms) for info, opened in found], format)
        return
    for index, (info, opened) in enumerate(found):
        if index:
            print()
        _print_description(info, opened, now_ms)


@txn.command("abort")
@click.argument(
    "name", required=False, help="The transactional id [with -t, -p, --start-offset: none]."
)
@click.option("-t", "--topic", help="Of a hanging transaction: the topic.")
@click.option("-p", "--partition", type=int, help="Of a hanging transaction: the partition.")
@click.option("--start-offset", type=int, help="Of a hanging transaction: its first offset.")
@yes_option
@brokers_option
def abort(
    name: str | None,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    yes: bool,
    brokers: str,
) -> None:
    """Abort an open transaction and fence its producer.

    Name a hanging transaction, which no coordinator knows, by the topic, partition and start offset
    that `penstock txn list --hanging` shows.

    \b
    penstock txn abort copier-0
    penstock txn abort -t orders -p 0 --start-offset 1234
    """
    hanging = (topic, partition, start_offset)
    if name is not None and hanging == (None, None, None):
        run(brokers, lambda session: _abort_known(session, name, yes))
        print(f"aborted the transaction of {name}")
        return
    if name is not None or topic is None or partition is None or start_offset is None:
        raise UserError("pass a transactional id, or all of -t, -p and --start-offset")
    place = f"{topic}[{partition}]"
    run(brokers, lambda session: _abort_hanging(session, topic, partition, start_offset, yes))
    print(f"aborted the transaction in {place} that started at offset {start_offset}")


async def _abort_known(session: CommandSession, name: str, yes: bool) -> None:
    from penstock.client.admin.transactions import ONGOING, PREPARING, fence

    info = await _require_transaction(session, name)
    if info.state in PREPARING:
        verb = "committed" if info.state == "PrepareCommit" else "aborted"
        raise UserError(f"the transaction of {name!r} is already being {verb} ({info.state})")
    if info.state != ONGOING:
        raise UserError(f"{name!r} has no open transaction ({info.state}); nothing to abort")
    confirm(f"Abort the open transaction of {name} and fence its producer?", yes)
    await fence(session.cluster, info)


async def _abort_hanging(
    session: CommandSession, topic: str, partition: int, start_offset: int, yes: bool
) -> None:
    from penstock.client.admin.transactions import coordinated, open_transactions, write_abort
    from penstock.client.list_offsets import partitions_of

    await require_topics(session, [topic])
    (where,) = await partitions_of(session.cluster, topic, [partition])
    opened = await open_transactions(session.cluster, [where])
    found = next((row for row in opened if row.start_offset == start_offset), None)
    if found is None:
        starts = ", ".join(str(row.start_offset) for row in opened)
        hint = f"open ones start at {starts}" if starts else "none is open there"
        raise UserError(f"no transaction in {where} starts at offset {start_offset}; {hint}")
    owners = await coordinated(session.cluster, [found])
    if found in owners:
        # A marker in this partition alone would break the transaction's atomicity.
        owner = owners[found]
        raise UserError(
            f"this transaction is not hanging: it belongs to {owner!r}; use `penstock txn abort "
            f"{owner}`"
        )
    confirm(f"Abort the transaction in {where} that starts at offset {start_offset}?", yes)
    await write_abort(session.cluster, found)


async def _require_transaction(session: CommandSession, name: str) -> TxnInfo:
    """Returns the transaction; raises UserError with the most similar id if it does not exist."""
    from penstock.base.errors import ErrorCode, Refused
    from penstock.client.admin.transactions import describe_transaction, list_transactions

    try:
        return await describe_transaction(session.cluster, name)
    except Refused as refused:
        if refused.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
    known = [listing.transactional_id for listing in await list_transactions(session.cluster)]
    close = nearest(name, known)
    hint = f"did you mean {close!r}?" if close else "see `penstock txn list`"
    raise UserError(f"transactional id {name!r} does not exist; {hint}")


async def _describe(session: CommandSession, name: str) -> tuple[TxnInfo, list[HangingCandidate]]:
    """Returns the transaction and its open parts according to the partitions' leaders."""
    from penstock.client.admin.transactions import open_transactions

    info = await _require_transaction(session, name)
    await session.cluster.refresh({where.topic for where in info.partitions})
    metadata = session.cluster.metadata
    led = [where for where in info.partitions if metadata.leader_of(where) >= 0]
    opened = await open_transactions(session.cluster, led)
    return info, [row for row in opened if row.producer_id == info.producer_id]


# Output.


def _document(info: TxnInfo, opened: list[HangingCandidate], now_ms: int) -> dict[str, object]:
    by_place = {row.where: row for row in opened}
    return {
        "transactional_id": info.transactional_id,
        "state": info.state,
        "producer_id": info.producer_id,
        "producer_epoch": info.producer_epoch,
        "coordinator": info.coordinator_id,
        "timeout_ms": info.timeout_ms,
        "started": None if info.started_ms is None else show_time(info.started_ms),
        "age_ms": None if info.started_ms is None else max(0, now_ms - info.started_ms),
        "partitions": [
            {
                "topic": where.topic,
                "partition": where.partition,
                "start_offset": by_place[where].start_offset if where in by_place else None,
                "last_written": (
                    show_time(by_place[where].last_written_ms) if where in by_place else None
                ),
            }
            for where in info.partitions
        ],
    }


def _open_document(row: HangingCandidate) -> dict[str, object]:
    return {
        "topic": row.where.topic,
        "partition": row.where.partition,
        "start_offset": row.start_offset,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "coordinator_epoch": row.coordinator_epoch,
        "last_written": show_time(row.last_written_ms),
    }


def _print_description(info: TxnInfo, opened: list[HangingCandidate], now_ms: int) -> None:
    print(f"id           {printable(info.transactional_id)}")
    print(f"state        {info.state}")
    print(f"producer     {info.producer_id}, epoch {info.producer_epoch}")
    print(f"coordinator  {info.coordinator_id}")
    print(f"timeout      {show_duration(info.timeout_ms)}")
    if info.started_ms is not None:
        age = show_duration(max(0, now_ms - info.started_ms))
        print(f"started      {show_time(info.started_ms)}, {age} ago")
    if info.partitions:
        by_place = {row.where: row for row in opened}
        print()
        print_table(
            ["topic", "partition ", "start offset ", "last written"],
            [_place_row(where, by_place.get(where)) for where in info.partitions],
        )


def _place_row(where: TopicPartition, row: HangingCandidate | None) -> tuple[object, ...]:
    if row is None:
        return (*where, None, None)
    return (*where, row.start_offset, show_time(row.last_written_ms))
