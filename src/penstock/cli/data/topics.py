"""`penstock topic`: create, list, describe, alter, delete, truncate."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from penstock.cli.data.configs import change_options, show_changes
from penstock.cli.server.up import parse_pairs
from penstock.cli.terminal.confirm import confirm, yes_option
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.name_completion import topic_config_names, topic_names
from penstock.cli.terminal.output import (
    OutputFormat,
    format_option,
    print_data,
    print_listing,
    print_rows,
    print_table,
    show_bytes,
)
from penstock.cli.terminal.session import CommandSession, brokers_option, require_topics, run

if TYPE_CHECKING:
    from penstock.client.metadata import TopicInfo

BROKERS_CHOICE = -1
"""Number of partitions or replicas that leaves the choice to the broker."""

names_argument = click.argument(
    "names", nargs=-1, required=True, help="Topic names.", shell_complete=topic_names
)
name_argument = click.argument("name", help="The topic.", shell_complete=topic_names)


@click.group("topic", no_args_is_help=True)
def topic() -> None:
    """Create, inspect and change topics."""


@topic.command("create")
@click.argument("names", nargs=-1, required=True, help="Names of the topics.")
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of partitions [the broker's default].",
)
@click.option(
    "-r",
    "--replication-factor",
    type=click.IntRange(min=1),
    metavar="N",
    help="Replicas of each partition [the broker's default].",
)
@click.option(
    "-c",
    "--config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    shell_complete=topic_config_names,
    help="A topic config; repeatable.",
)
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic already exists.")
@click.option("--dry-run", is_flag=True, help="Only check whether it would succeed.")
@brokers_option
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
    brokers: str,
) -> None:
    """Create topics.

    \b
    penstock topic create orders -p 6
    penstock topic create orders -p 6 -r 3 -c retention.ms=604800000 --if-not-exists
    """
    pairs = parse_pairs(configs, "-c")

    async def work(session: CommandSession) -> None:
        from penstock.base.errors import ErrorCode, Refused
        from penstock.client.admin.admin import Admin

        outcomes = await Admin(session.cluster).create_topics(
            names,
            BROKERS_CHOICE if partitions is None else partitions,
            BROKERS_CHOICE if replication_factor is None else replication_factor,
            pairs,
            validate_only=dry_run,
        )
        failures: list[Refused] = []
        for name, outcome in outcomes.items():
            if not isinstance(outcome, Refused):
                print(f"topic {name} can be created" if dry_run else f"created topic {name}")
            elif outcome.code is ErrorCode.TOPIC_ALREADY_EXISTS and if_not_exists:
                print(f"topic {name} already exists")
            else:
                failures.append(outcome)
        if failures:
            others = f" ({len(failures)} of {len(outcomes)} failed)" if len(outcomes) > 1 else ""
            raise Refused(failures[0].code, f"{str(failures[0]).rstrip('.')}{others}")

    run(brokers, work)


@topic.command("list")
@click.argument(
    "patterns",
    nargs=-1,
    help="Only topics with these names; * and ? are wildcards.",
    shell_complete=topic_names,
)
@click.option("-n", "--names", is_flag=True, help="Print only names, for scripts.")
@click.option(
    "-i", "--internal", is_flag=True, help="Include internal topics, whose names begin with __."
)
@brokers_option
@format_option
def list_topics(
    patterns: tuple[str, ...], names: bool, internal: bool, brokers: str, format: OutputFormat
) -> None:
    """List topics with their partitions and replicas.

    \b
    penstock topic list
    penstock topic list 'orders*' -n
    penstock topic list --internal --format wide
    """

    async def work(session: CommandSession) -> list[TopicInfo]:
        from penstock.client.admin.admin import Admin

        return await Admin(session.cluster).list_topics()

    internal = internal or any(pattern.startswith("__") for pattern in patterns)
    topics = [
        t
        for t in run(brokers, work)
        if (internal or not t.is_hidden)
        and (not patterns or any(fnmatchcase(t.name, pattern) for pattern in patterns))
    ]
    if names and not format.is_data:
        for found in topics:
            print(found.name)
        return
    from penstock.base.ids import show_topic_id

    rows = [
        (
            t.name,
            len(t.partitions),
            _replication(t),
            _under_replicated(t),
            sum(p.leader_id < 0 for p in t.partitions.values()),
            show_topic_id(t.topic_id),
            t.is_internal,
        )
        for t in topics
    ]
    keys = ("name", "partitions", "replication_factor", "under_replicated")
    columns = ["name", "partitions ", "replicas ", "under-replicated "]
    print_rows(
        format,
        (*keys, "leaderless", "topic_id", "internal"),
        [*columns, "+leaderless ", "+id", "+internal"],
        rows,
    )


@topic.command("describe")
@names_argument
@brokers_option
@format_option
def describe(names: tuple[str, ...], brokers: str, format: OutputFormat) -> None:
    """Show partitions, offsets, sizes and changed configs of topics.

    \b
    penstock topic describe orders
    penstock topic describe orders payments --format yaml
    """

    async def work(session: CommandSession) -> list[dict[str, object]]:
        await require_topics(session, names)
        return [await _describe(session, name) for name in names]

    documents = run(brokers, work)
    if format.is_data:
        print_data(documents, format)
        return
    for index, document in enumerate(documents):
        if index:
            print()
        _print_description(document, format)


async def _describe(session: CommandSession, name: str) -> dict[str, object]:
    from penstock.base.ids import show_topic_id
    from penstock.client.admin.admin import TOPIC, Admin
    from penstock.client.list_offsets import EARLIEST, LATEST, list_offsets
    from penstock.client.metadata import TopicPartition

    admin = Admin(session.cluster)
    (info,) = await admin.describe_topics([name])
    configs = await admin.describe_configs(TOPIC, name)
    sizes = await admin.log_sizes([name])
    led = [TopicPartition(name, p.index) for p in info.partitions.values() if p.leader_id >= 0]
    starts = await list_offsets(session.cluster, dict.fromkeys(led, EARLIEST))
    ends = await list_offsets(session.cluster, dict.fromkeys(led, LATEST))
    partitions = []
    for p in info.partitions.values():
        where = TopicPartition(name, p.index)
        partitions.append(
            {
                "partition": p.index,
                "leader": p.leader_id if p.leader_id >= 0 else None,
                "leader_epoch": p.leader_epoch,
                "replicas": list(p.replicas),
                "isr": list(p.isr),
                "start_offset": starts[where].offset if where in starts else None,
                "end_offset": ends[where].offset if where in ends else None,
                "size_bytes": sizes.get(where),
            }
        )
    return {
        "name": name,
        "topic_id": show_topic_id(info.topic_id),
        "internal": info.is_internal,
        "replication_factor": _replication(info),
        "configs": {c.name: c.value for c in configs if c.source == "topic"},
        "partitions": partitions,
    }


def _print_description(document: dict[str, object], format: OutputFormat) -> None:
    partitions = document["partitions"]
    configs = document["configs"]
    assert isinstance(partitions, list)
    assert isinstance(configs, dict)
    records = sum((p["end_offset"] or 0) - (p["start_offset"] or 0) for p in partitions)
    size = show_bytes(sum(p["size_bytes"] or 0 for p in partitions))
    print(f"topic       {document['name']}")
    print(f"id          {document['topic_id']}")
    print(f"partitions  {len(partitions)}, replication factor {document['replication_factor']}")
    print(f"records     {records:,} offsets, {size}")
    for key, value in sorted(configs.items()):
        print(f"config      {key}={value}")
    print()
    print_table(
        ["partition ", "leader ", "epoch ", "replicas", "isr", "start ", "end ", "size "],
        [
            (
                p["partition"],
                p["leader"],
                p["leader_epoch"],
                p["replicas"],
                p["isr"],
                p["start_offset"],
                p["end_offset"],
                None if p["size_bytes"] is None else show_bytes(p["size_bytes"]),
            )
            for p in partitions
        ],
        format,
    )


@topic.command("alter")
@name_argument
@click.option(
    "-p", "--partitions", type=int, metavar="N", help="New number of partitions; it can only grow."
)
@change_options(topic_config_names)
@brokers_option
def alter(
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    deletes: tuple[str, ...],
    brokers: str,
) -> None:
    """Change configs of a topic, or add partitions to it.

    Existing records stay in place; with more partitions, new records of a key may go to another
    one.

    \b
    penstock topic alter orders -c retention.ms=86400000
    penstock topic alter orders -d retention.ms -p 12
    """
    pairs = parse_pairs(configs, "-c")
    if partitions is None and not pairs and not deletes:
        raise UserError("nothing to change; pass -p N, -c name=value or -d name")

    async def work(session: CommandSession) -> None:
        from penstock.client.admin.admin import TOPIC, Admin

        await require_topics(session, [name])
        admin = Admin(session.cluster)
        if pairs or deletes:
            await admin.alter_configs(TOPIC, name, pairs, deletes)
        if partitions is not None:
            await admin.create_partitions(name, partitions)

    run(brokers, work)
    changes = [show_changes(pairs, deletes)] if pairs or deletes else []
    changes += [f"{partitions} partitions"] if partitions is not None else []
    print(f"altered topic {name}: {', '.join(changes)}")


@topic.command("delete")
@names_argument
@yes_option
@brokers_option
def delete(names: tuple[str, ...], yes: bool, brokers: str) -> None:
    """Delete topics with all their records.

    \b
    penstock topic delete orders
    penstock topic delete orders.test payments.test --yes
    """

    async def work(session: CommandSession) -> None:
        from penstock.client.admin.admin import Admin

        await require_topics(session, names)
        confirm(f"Delete {', '.join(names)} with all records?", yes)
        admin = Admin(session.cluster)
        for name in names:
            await admin.delete_topic(name)
            print(f"deleted topic {name}")

    run(brokers, work)


@topic.command("truncate")
@name_argument
@click.option(
    "--before",
    default="end",
    show_default=True,
    help="Delete records before this offset or time: end, 5, -10, @-1h, @2026-11-01.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=int,
    multiple=True,
    help="Only this partition; repeatable.",
)
@yes_option
@brokers_option
@format_option
def truncate(
    name: str,
    before: str,
    partitions: tuple[int, ...],
    yes: bool,
    brokers: str,
    format: OutputFormat,
) -> None:
    """Delete a topic's records up to an offset or a time, and keep the topic.

    \b
    penstock topic truncate events --before @-6h
    penstock topic truncate events -p 0 --before 1000 --yes
    """
    from penstock.base.ids import Millis
    from penstock.client.offset_syntax import OffsetSyntaxError, parse_position

    try:
        parse_position(before, Millis(0))
    except OffsetSyntaxError as error:
        raise UserError(f"--before {error}") from None

    async def work(session: CommandSession) -> dict[int, int]:
        from penstock.client.admin.admin import Admin
        from penstock.client.list_offsets import LATEST, list_offsets, partitions_of, resolve
        from penstock.client.offset_syntax import OffsetRange

        await require_topics(session, [name])
        places = await partitions_of(session.cluster, name, list(partitions) or None)
        confirm(f"Delete the records of {name} before {before}?", yes)
        position = parse_position(before, session.clock.now_ms())
        spans = await resolve(session.cluster, places, OffsetRange(position))
        # Checked first, so that a refusal does not leave only some partitions truncated.
        ends = await list_offsets(session.cluster, dict.fromkeys(places, LATEST))
        for where, span in spans.items():
            if span.start > ends[where].offset:
                raise UserError(
                    f"{where} ends at offset {ends[where].offset}, before {span.start}; "
                    "--before end deletes all records (nothing was done)"
                )
        starts = await Admin(session.cluster).delete_records(
            {where: span.start for where, span in spans.items()}
        )
        return {where.partition: starts[where] for where in sorted(starts)}

    starts = run(brokers, work)
    rows = [{"partition": p, "start_offset": offset} for p, offset in starts.items()]
    document = {"topic": name, "partitions": rows}
    print_listing(format, document, ["partition ", "start offset "], list(starts.items()))


def _replication(info: TopicInfo) -> int:
    return max((len(p.replicas) for p in info.partitions.values()), default=0)


def _under_replicated(info: TopicInfo) -> int:
    return sum(len(p.isr) < len(p.replicas) for p in info.partitions.values())
