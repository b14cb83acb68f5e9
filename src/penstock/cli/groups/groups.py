"""`penstock group`: lists, describes and deletes groups; see also `seek` and `advise`.

`penstock group alter`: changes configs of a group, such as its delivery limit. The group need not
exist: its configs may be set before its first member joins.
"""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING

import click

from penstock.cli.data.configs import change_options, show_changes
from penstock.cli.groups.advise import advise
from penstock.cli.groups.arguments import (
    Chosen,
    is_chosen,
    parse_topics,
    refuse_members,
    require_group,
)
from penstock.cli.groups.seek import seek
from penstock.cli.server.up import parse_pairs
from penstock.cli.terminal.confirm import confirm, yes_option
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.name_completion import group_config_names, group_names
from penstock.cli.terminal.output import (
    OutputFormat,
    format_option,
    print_data,
    print_rows,
    print_table,
    printable,
    show_duration,
    show_time,
)
from penstock.cli.terminal.session import CommandSession, brokers_option, run

if TYPE_CHECKING:
    from penstock.client.admin.groups import DescribedMember, GroupInfo, GroupListing, Lag


@click.command("alter")
@click.argument("name", help="The group.", shell_complete=group_names)
@change_options(group_config_names)
@brokers_option
def alter(name: str, configs: tuple[str, ...], deletes: tuple[str, ...], brokers: str) -> None:
    """Change configs of a group: leases, retries and dead letters of a queue, timeouts.

    They apply at once, also to a group that has no members yet. `penstock config list -g NAME`
    lists them.

    \b
    penstock group alter workers -c share.delivery.count.limit=3
    penstock group alter workers -c share.record.lock.duration.ms=60000 -d share.retry.backoff.ms
    """
    pairs = parse_pairs(configs, "-c")
    if not pairs and not deletes:
        raise UserError("nothing to change; pass -c name=value or -d name")

    async def work(session: CommandSession) -> None:
        from penstock.client.admin.admin import GROUP_CONFIGS, Admin

        await Admin(session.cluster).alter_configs(GROUP_CONFIGS, name, pairs, deletes)

    run(brokers, work)
    print(f"altered group {name}: {show_changes(pairs, deletes)}")


STATES = (
    "Stable",
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Dead",
)


CSV = "csv"

names_argument = click.argument(
    "names", nargs=-1, required=True, help="Group names.", shell_complete=group_names
)


@click.group("group", no_args_is_help=True)
def group() -> None:
    """Inspect, configure, seek and delete consumer groups."""


group.add_command(alter)
group.add_command(seek)
group.add_command(advise)


@group.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES, case_sensitive=False),
    multiple=True,
    help="Only groups in this state; repeatable.",
)
@brokers_option
@format_option
def list_command(states: tuple[str, ...], brokers: str, format: OutputFormat) -> None:
    """List groups with their state and kind.

    \b
    penstock group list
    penstock group list --state empty --format json
    """

    async def work(session: CommandSession) -> list[GroupListing]:
        from penstock.client.admin.groups import list_groups

        return await list_groups(session.cluster)

    rows = [
        (g.name, g.state or None, g.kind or None, g.protocol_type or None, g.coordinator_id)
        for g in run(brokers, work)
        if not states or g.state in states
    ]
    keys = ("name", "state", "type", "protocol", "coordinator")
    print_rows(format, keys, ["name", "state", "type", "protocol", "coordinator "], rows)


@group.command("describe")
@names_argument
@brokers_option
@click.option(
    "--format",
    type=click.Choice([*OutputFormat, CSV]),
    default="text",
    show_default=True,
    help="Output format; `group seek --to file:` reads csv.",
)
def describe(names: tuple[str, ...], brokers: str, format: str) -> None:
    """Show members, committed offsets and lag, in records and in time.

    The age of a partition is that of its first unread record. In csv each line is
    topic,partition,offset (with the group in front if several are named), the format that
    kafka-consumer-groups exports and imports.

    \b
    penstock group describe billing
    penstock group describe billing --format csv > offsets.csv
    """

    async def work(session: CommandSession) -> list[tuple[GroupInfo, list[Lag]]]:
        return [await _measure(session, name) for name in dict.fromkeys(names)]

    from penstock.runtime.clock import SystemClock

    measured = run(brokers, work)
    if format == CSV:
        _print_csv(measured)
        return
    chosen = OutputFormat(format)
    now_ms = SystemClock().now_ms()
    documents = [_document(info, lags, now_ms) for info, lags in measured]
    if chosen.is_data:
        print_data(documents, chosen)
        return
    for index, (info, lags) in enumerate(measured):
        if index:
            print()
        _print_description(info, lags, now_ms, chosen)


@group.command("delete")
@names_argument
@click.option(
    "-t",
    "--topics",
    multiple=True,
    metavar="TOPIC[:0,2]",
    help="Delete only the group's offsets of this topic; repeatable.",
)
@yes_option
@brokers_option
def delete(names: tuple[str, ...], topics: tuple[str, ...], yes: bool, brokers: str) -> None:
    """Delete groups without members, with their committed offsets.

    \b
    penstock group delete billing
    penstock group delete billing -t old-orders --yes
    """
    chosen = parse_topics(topics)
    what = f"the offsets of {', '.join(chosen)} in " if chosen else ""

    async def work(session: CommandSession) -> None:
        from penstock.client.admin.groups import delete_group

        infos = {name: await require_group(session, name) for name in names}
        confirm(f"Delete {what}{', '.join(infos)}?", yes)
        for name, info in infos.items():
            if chosen:
                # Members may still read other topics; the broker decides whether they do.
                count = await _forget(session, name, chosen)
                print(f"deleted {count} {'offset' if count == 1 else 'offsets'} of group {name}")
            else:
                refuse_members(info, "delete")
                await delete_group(session.cluster, name)
                print(f"deleted group {name}")

    run(brokers, work)


async def _forget(session: CommandSession, name: str, chosen: Chosen) -> int:
    from penstock.client.committed_offsets import committed_offsets, delete_offsets

    places = [
        where
        for where in await committed_offsets(session.cluster, name)
        if is_chosen(chosen, where.topic, where.partition)
    ]
    if not places:
        raise UserError(f"group {name!r} has no offsets of {', '.join(chosen)}")
    await delete_offsets(session.cluster, name, places)
    return len(places)


# Output of `describe`.


async def _measure(session: CommandSession, name: str) -> tuple[GroupInfo, list[Lag]]:
    from penstock.client.admin.groups import measure_lag
    from penstock.client.committed_offsets import committed_offsets

    info = await require_group(session, name)
    committed = await committed_offsets(session.cluster, name)
    assigned = [where for member in info.members for where in member.assigned]
    return info, await measure_lag(session.cluster, committed, assigned)


def _print_csv(measured: list[tuple[GroupInfo, list[Lag]]]) -> None:
    lines = csv.writer(sys.stdout, lineterminator="\n")
    for info, lags in measured:
        for lag in lags:
            if lag.committed is not None:
                row = [lag.where.topic, lag.where.partition, lag.committed]
                lines.writerow(row if len(measured) == 1 else [info.name, *row])


def _totals(lags: list[Lag], now_ms: int) -> tuple[int, int | None]:
    """Returns the lag over all partitions, and the age of the oldest unread record."""
    ages = [age for lag in lags if (age := lag.age_ms(now_ms)) is not None]
    return sum(lag.records or 0 for lag in lags), max(ages, default=None)


def _document(info: GroupInfo, lags: list[Lag], now_ms: int) -> dict[str, object]:
    records, age_ms = _totals(lags, now_ms)
    return {
        "name": info.name,
        "state": info.state,
        "type": info.kind,
        "protocol": info.protocol_type or None,
        "assignor": info.assignor or None,
        "epoch": info.epoch,
        "coordinator": info.coordinator_id,
        "lag": records,
        "lag_ms": age_ms,
        "members": [_member_document(member) for member in info.members],
        "partitions": [_lag_document(info, lag, now_ms) for lag in lags],
    }


def _member_document(member: DescribedMember) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "topics": list(member.topics),
        "assigned": [where._asdict() for where in member.assigned],
        "target": [where._asdict() for where in member.target],
    }


def _lag_document(info: GroupInfo, lag: Lag, now_ms: int) -> dict[str, object]:
    owner = info.owner_of(lag.where)
    first = lag.first_unread_ms
    return {
        "topic": lag.where.topic,
        "partition": lag.where.partition,
        "committed_offset": lag.committed,
        "start_offset": lag.start_offset,
        "end_offset": lag.end_offset,
        "lag": lag.records,
        "lag_ms": lag.age_ms(now_ms),
        "first_unread": None if first is None else show_time(first),
        "metadata": lag.metadata or None,
        "member_id": None if owner is None else owner.member_id,
    }


def _print_description(info: GroupInfo, lags: list[Lag], now_ms: int, format: OutputFormat) -> None:
    records, age_ms = _totals(lags, now_ms)
    age = f", {show_duration(age_ms)} behind" if age_ms else ""
    print(f"group        {printable(info.name)}")
    print(f"state        {info.state}")
    print(f"type         {info.kind}")
    print(f"assignor     {printable(info.assignor or '-')}")
    print(f"coordinator  {info.coordinator_id}")
    print(f"members      {len(info.members)}")
    print(f"lag          {records:,} records{age}")
    if info.members:
        print()
        print_table(
            ["member", "instance", "client", "host", "partitions"],
            [
                (m.member_id, m.instance_id, m.client_id, m.host, _show_places(m))
                for m in info.members
            ],
        )
    if lags:
        print()
        print_table(
            [
                *("topic", "partition ", "committed ", "end ", "lag ", "age ", "member"),
                *("+host", "+start ", "+first unread", "+metadata"),
            ],
            [_lag_row(info, lag, now_ms) for lag in lags],
            format,
        )


def _show_places(member: DescribedMember) -> str | None:
    """Formats assigned partitions as `orders:0,1 payments:3`."""
    topics: dict[str, list[str]] = {}
    for where in member.assigned:
        topics.setdefault(where.topic, []).append(str(where.partition))
    return " ".join(f"{topic}:{','.join(rows)}" for topic, rows in topics.items()) or None


def _lag_row(info: GroupInfo, lag: Lag, now_ms: int) -> tuple[object, ...]:
    owner = info.owner_of(lag.where)
    age_ms = lag.age_ms(now_ms)
    return (
        lag.where.topic,
        lag.where.partition,
        lag.committed,
        lag.end_offset,
        lag.records,
        show_duration(age_ms) if age_ms else None,
        None if owner is None else owner.member_id,
        None if owner is None else owner.host,
        lag.start_offset,
        None if lag.first_unread_ms is None else show_time(lag.first_unread_ms),
        lag.metadata or None,
    )
