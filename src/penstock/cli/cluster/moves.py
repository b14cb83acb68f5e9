"""`penstock cluster reassign`, `elect` and `drain`: placement of replicas and leaders.

With --dry-run each prints its plan in the format that --plan reads, which is that of Kafka's own
tools.

Execution of a reassignment plan, with an optional throttle and progress. A throttle is two
configs (KIP-73): the bytes per second on every participating broker, and the throttled replicas
on every topic. Both are removed when the moves are done.

Reassignment plans: read from a file or computed for a goal, shown, and executed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING

import click

from penstock.cli.terminal.confirm import confirm, yes_option
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.name_completion import topic_names
from penstock.cli.terminal.output import (
    OutputFormat,
    format_option,
    print_data,
    print_rows,
    print_table,
)
from penstock.cli.terminal.progress import Progress
from penstock.cli.terminal.session import CommandSession, brokers_option, require_topics, run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.client.metadata import TopicPartition

    Plan = dict[TopicPartition, tuple[int, ...]]


CORDONED = "cordoned.log.dirs"


@dataclass(frozen=True)
class Manner:
    """Options for executing a plan."""

    throttle: int | None
    dry_run: bool
    no_wait: bool
    yes: bool
    format: OutputFormat


def read_plan(file: IO[str]) -> Plan:
    from penstock.client.metadata import TopicPartition

    try:
        rows = json.load(file)["partitions"]
        return {
            TopicPartition(str(row["topic"]), int(row["partition"])): tuple(
                int(node) for node in row["replicas"]
            )
            for row in rows
        }
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"--plan: {error!r}; expected "
            '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}'
        ) from None


async def select(session: CommandSession, topics: tuple[str, ...]) -> Plan:
    """Returns the current replicas of these topics."""

    await require_topics(session, topics)
    layout = await read_layout(session)
    return {place: nodes for place, nodes in layout.items() if not topics or place.topic in topics}


async def make_plan(
    session: CommandSession,
    layout: Plan,
    wanted: Plan | None,
    nodes: list[int] | None,
    factor: int | None,
) -> Plan:
    from penstock.cluster.controller import rebalance_plan

    if wanted is not None:
        return {place: target for place, target in wanted.items() if layout.get(place) != target}
    racks = await open_racks(session)
    if nodes is not None:
        unknown = [node for node in nodes if node not in racks]
        if unknown:
            raise UserError(
                f"--to: node {unknown[0]} is down or being drained; see `penstock cluster describe`"
            )
        leaving = {node for place in layout.values() for node in place if node not in nodes}
        chosen = {node: racks[node] for node in nodes}
        plan = rebalance_plan.evacuate(layout, chosen, leaving)
    elif factor is not None:
        if factor > len(racks):
            raise UserError(
                f"--factor {factor} needs {factor} nodes that accept replicas; "
                f"the cluster has {len(racks)}, see `penstock cluster describe`"
            )
        plan = rebalance_plan.resize(layout, racks, factor)
    else:
        plan = rebalance_plan.spread(layout, racks)
    return plan


async def open_racks(session: CommandSession) -> dict[int, str | None]:
    """Returns the racks of the nodes that accept new replicas."""
    from penstock.client.admin.admin import BROKER, Admin

    admin = Admin(session.cluster)
    racks = {}
    for node, broker in sorted(session.cluster.metadata.brokers.items()):
        entries = await admin.describe_configs(BROKER, str(node), [CORDONED])
        if not any(entry.value for entry in entries):
            racks[node] = broker.rack
    return racks


async def carry_out(session: CommandSession, plan: Plan, layout: Plan, manner: Manner) -> None:
    """Shows the plan, confirms and starts it, and waits for its end, as `manner` says."""

    copies = sum(node not in layout.get(place, ()) for place in plan for node in plan[place])
    if manner.dry_run or not plan:
        _print_plan(plan, layout, copies, manner.format)
        return
    if not manner.format.is_data:
        _print_plan(plan, layout, copies, manner.format)
    confirm(f"Move {len(plan)} partitions?", manner.yes)
    await begin(session, plan, layout, manner.throttle)
    if not manner.no_wait:
        await finish(session, plan)
        if manner.throttle is not None:
            await clear_throttle(session)
    if manner.format.is_data:
        print_data(
            {**_document(plan, layout), "copies": copies, "done": not manner.no_wait}, manner.format
        )
        return
    if manner.no_wait:
        print("started; see `penstock cluster reassign --status`")
        if manner.throttle is not None:
            print("when it is done, remove the throttle: `penstock cluster reassign --unthrottle`")
    else:
        print(f"moved {len(plan)} partitions")


def _document(plan: Plan, layout: Plan) -> dict[str, object]:
    return {
        "version": 1,
        "partitions": [
            {
                "topic": place.topic,
                "partition": place.partition,
                "replicas": list(target),
                "from": list(layout.get(place, ())),
            }
            for place, target in plan.items()
        ],
    }


def _print_plan(plan: Plan, layout: Plan, copies: int, format: OutputFormat) -> None:
    if format.is_data:
        print_data({**_document(plan, layout), "copies": copies, "done": not plan}, format)
    elif not plan:
        print("nothing to move")
    else:
        rows = [(p.topic, p.partition, layout.get(p, ()), target) for p, target in plan.items()]
        print_table(["topic", "partition ", "from", "to"], rows)
        print(f"{len(plan)} partitions, {copies} replicas to copy")


POLL_SECONDS = 0.5
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
HELD_BACK = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
BATCH = 1_000
"""Partitions per request."""


async def read_layout(session: CommandSession) -> dict[TopicPartition, tuple[int, ...]]:
    """Returns the replicas of every partition, without those that a running move removes."""
    from penstock.client.admin.admin import Admin
    from penstock.client.admin.reassignments import Reassignments
    from penstock.client.metadata import TopicPartition

    moving = await Reassignments(session.cluster).ongoing()
    layout = {}
    for topic in await Admin(session.cluster).list_topics():
        for partition in topic.partitions.values():
            place = TopicPartition(topic.name, partition.index)
            gone = moving[place].removing if place in moving else ()
            layout[place] = tuple(node for node in partition.replicas if node not in gone)
    return layout


async def begin(session: CommandSession, plan: Plan, layout: Plan, throttle: int | None) -> None:
    """Requests every move; raises UserError with the first refusals, if there are any."""
    from itertools import islice

    from penstock.client.admin.reassignments import Reassignments

    if throttle is not None:
        await set_throttle(session, plan, layout, throttle)
    refused = []
    waiting = iter(plan.items())
    while part := dict(islice(waiting, BATCH)):
        answers = await Reassignments(session.cluster).reassign(part)
        refused += [f"{place}: {why}" for place, why in answers.items() if why is not None]
    if refused:
        more = f" (and {len(refused) - 3} more)" if len(refused) > 3 else ""
        raise UserError(f"{len(refused)} moves were refused: {'; '.join(refused[:3])}{more}")


async def finish(session: CommandSession, plan: Plan) -> None:
    """Waits until every move of the plan has ended; raises UserError if one was cancelled."""
    import asyncio

    from penstock.client.admin.reassignments import Reassignments

    moves = Reassignments(session.cluster)
    left = len(plan)
    with Progress("moving", len(plan), unit="partitions") as progress:
        while left:
            under_way = await moves.ongoing()
            now = sum(place in under_way for place in plan)
            progress.advance(left - now)
            left = now
            if left:
                await asyncio.sleep(POLL_SECONDS)
    layout = await read_layout(session)
    elsewhere = [str(place) for place in plan if layout.get(place) != plan[place]]
    if elsewhere:
        raise UserError(
            f"{len(elsewhere)} partitions were not moved as planned, e.g. {elsewhere[0]}: the move "
            "was cancelled or replaced by another one"
        )


async def set_throttle(session: CommandSession, plan: Plan, layout: Plan, rate: int) -> None:
    from penstock.client.admin.admin import BROKER, TOPIC, Admin

    admin = Admin(session.cluster)
    held_back: dict[str, tuple[list[str], list[str]]] = {}
    nodes: dict[int, None] = {}
    for place, target in plan.items():
        sources, takers = held_back.setdefault(place.topic, ([], []))
        old = layout.get(place, ())
        new = [node for node in target if node not in old]
        sources += [f"{place.partition}:{node}" for node in old]
        takers += [f"{place.partition}:{node}" for node in new]
        nodes.update(dict.fromkeys((*old, *new)))
    for name, pairs in held_back.items():
        values = {key: ",".join(pair) for key, pair in zip(HELD_BACK, pairs, strict=True)}
        await admin.alter_configs(TOPIC, name, values)
    for node in sorted(set(nodes) & set(session.cluster.metadata.brokers)):
        await admin.alter_configs(BROKER, str(node), dict.fromkeys(RATES, str(rate)))


async def clear_throttle(session: CommandSession) -> None:
    """Removes every throttle, including those of other commands and tools."""
    from penstock.base.errors import ErrorCode, Refused
    from penstock.client.admin.admin import BROKER, TOPIC, Admin

    admin = Admin(session.cluster)
    topics = await admin.list_topics()
    for node in sorted(session.cluster.metadata.brokers):
        await admin.alter_configs(BROKER, str(node), deletes=RATES)
    for topic in topics:
        try:
            await admin.alter_configs(TOPIC, topic.name, deletes=HELD_BACK)
        except Refused as refused:
            if refused.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise  # The topic was deleted meanwhile.


dry_run_option = click.option("--dry-run", is_flag=True, help="Only show the plan.")
no_wait_option = click.option("--no-wait", is_flag=True, help="Return before the copying is done.")
throttle_option = click.option(
    "--throttle",
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Bytes per second that each node may copy [no limit].",
)
topics_argument = click.argument(
    "topics", nargs=-1, help="Topic names [all].", shell_complete=topic_names
)


# -- reassign -----------------------------------------------------------------------------------


@click.command("reassign")
@topics_argument
@click.option("--balance", is_flag=True, help="Spread replicas and leaders evenly.")
@click.option(
    "--factor", type=click.IntRange(min=1), metavar="N", help="Change the number of replicas to N."
)
@click.option("--to", metavar="ID,...", help="Keep replicas on these nodes only.")
@click.option("--plan", "file", type=click.File("r"), help="Execute the plan in this file.")
@click.option("--cancel", is_flag=True, help="Cancel the running moves.")
@click.option("--status", is_flag=True, help="Show the running moves.")
@click.option("--unthrottle", is_flag=True, help="Remove every throttle.")
@throttle_option
@dry_run_option
@no_wait_option
@yes_option
@brokers_option
@format_option
def reassign(
    topics: tuple[str, ...],
    balance: bool,
    factor: int | None,
    to: str | None,
    file: IO[str] | None,
    cancel: bool,
    status: bool,
    unthrottle: bool,
    throttle: int | None,
    dry_run: bool,
    no_wait: bool,
    yes: bool,
    brokers: str,
    format: OutputFormat,
) -> None:
    """Move replicas to other nodes: balance them, change their number, or execute a plan.

    \b
    penstock cluster reassign --balance --dry-run
    penstock cluster reassign orders --factor 3 --throttle 50000000
    penstock cluster reassign --plan plan.json
    penstock cluster reassign --status
    """
    goals = (balance, factor, to, file, cancel, status, unthrottle)
    if sum(goal not in (None, False) for goal in goals) != 1:
        raise UserError(
            "pass exactly one of --balance, --factor, --to, --plan, --cancel, --status, "
            "--unthrottle"
        )
    if status:
        run(brokers, lambda session: _show_status(session, topics, format))
    elif cancel:
        run(brokers, lambda session: _cancel(session, topics, dry_run, format))
    elif unthrottle:
        run(brokers, _unthrottle)
    else:
        wanted = read_plan(file) if file is not None else None
        nodes = _parse_nodes(to) if to is not None else None
        manner = Manner(throttle, dry_run, no_wait, yes, format)

        async def work(session: CommandSession) -> None:
            layout = await select(session, topics)
            plan = await make_plan(session, layout, wanted, nodes, factor)
            await carry_out(session, plan, layout, manner)

        run(brokers, work)


def _parse_nodes(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--to {text!r} is not a list of node ids; write 1,2,3") from None


async def _show_status(
    session: CommandSession, topics: tuple[str, ...], format: OutputFormat
) -> None:
    from penstock.client.admin.reassignments import Reassignments

    await require_topics(session, topics)
    under_way = await Reassignments(session.cluster).ongoing()
    rows = [
        (place.topic, place.partition, move.replicas, move.adding, move.removing)
        for place, move in sorted(under_way.items())
        if not topics or place.topic in topics
    ]
    if not rows and not format.is_data:
        print("no moves are running")
        return
    keys = ("topic", "partition", "replicas", "adding", "removing")
    print_rows(format, keys, ["topic", "partition ", "replicas", "adding", "removing"], rows)


async def _cancel(
    session: CommandSession, topics: tuple[str, ...], dry_run: bool, format: OutputFormat
) -> None:
    from penstock.client.admin.reassignments import Reassignments

    await require_topics(session, topics)
    moves = Reassignments(session.cluster)
    places = [p for p in sorted(await moves.ongoing()) if not topics or p.topic in topics]
    answers = {} if dry_run or not places else await moves.reassign(dict.fromkeys(places))
    refused = {place: why for place, why in answers.items() if why is not None}
    if format.is_data:
        print_data(
            {"cancelled": [str(p) for p in places if p not in refused], "done": not dry_run}, format
        )
    else:
        print(f"{'would cancel' if dry_run else 'cancelled'} {len(places) - len(refused)} moves")
    if refused:
        place, why = next(iter(refused.items()))
        raise UserError(f"{len(refused)} moves could not be cancelled: {place}: {why}")


async def _unthrottle(session: CommandSession) -> None:

    await clear_throttle(session)
    print("no replica is throttled")


# -- elect --------------------------------------------------------------------------------------


@click.command("elect")
@topics_argument
@click.option(
    "--unclean", is_flag=True, help="Elect any live replica of partitions without a leader."
)
@dry_run_option
@yes_option
@brokers_option
@format_option
def elect(
    topics: tuple[str, ...],
    unclean: bool,
    dry_run: bool,
    yes: bool,
    brokers: str,
    format: OutputFormat,
) -> None:
    """Return leadership to preferred replicas, or elect any live replica (--unclean).

    An unclean election loses records that only the missing replicas have.

    \b
    penstock cluster elect
    penstock cluster elect orders --unclean --dry-run
    """

    async def work(session: CommandSession) -> None:
        from penstock.client.admin.reassignments import Reassignments

        places = await _to_elect(session, topics, unclean)
        if dry_run or not places:
            _print_elections(places, {}, dry_run, format)
            return
        if unclean:
            question = f"Records may be lost. Elect leaders of {len(places)} partitions?"
            confirm(question, yes)
        answers = await Reassignments(session.cluster).elect(places, unclean=unclean)
        failed = {place: why for place, why in answers.items() if why is not None}
        _print_elections(places, failed, dry_run, format)
        if failed:
            place, why = next(iter(failed.items()))
            raise UserError(f"{len(failed)} elections failed: {place}: {why}")

    run(brokers, work)


async def _to_elect(
    session: CommandSession, topics: tuple[str, ...], unclean: bool
) -> list[TopicPartition]:
    from penstock.client.admin.admin import Admin
    from penstock.client.metadata import TopicPartition

    await require_topics(session, topics)
    infos = await Admin(session.cluster).list_topics()
    return [
        TopicPartition(info.name, p.index)
        for info in infos
        if not topics or info.name in topics
        for p in info.partitions.values()
        if (p.leader_id < 0 if unclean else p.leader_id != p.replicas[0])
    ]


def _print_elections(
    places: list[TopicPartition],
    failed: Mapping[TopicPartition, Exception],
    dry_run: bool,
    format: OutputFormat,
) -> None:
    if format.is_data:
        print_data(
            {
                "partitions": [
                    {
                        "topic": place.topic,
                        "partition": place.partition,
                        "error": str(failed[place]) if place in failed else None,
                    }
                    for place in places
                ],
                "done": not dry_run,
            },
            format,
        )
    elif not places:
        print("no election is needed")
    elif dry_run:
        for place in places:
            print(f"would elect a leader of {place}")
    else:
        print(f"elected leaders of {len(places) - len(failed)} partitions")


# -- drain --------------------------------------------------------------------------------------


@click.command("drain")
@click.argument("node", type=int, help="The node's id.")
@click.option("--undo", is_flag=True, help="Allow replicas on the node again.")
@throttle_option
@dry_run_option
@no_wait_option
@yes_option
@brokers_option
@format_option
def drain(
    node: int,
    undo: bool,
    throttle: int | None,
    dry_run: bool,
    no_wait: bool,
    yes: bool,
    brokers: str,
    format: OutputFormat,
) -> None:
    """Move all replicas off a node and keep it empty, so that it can be removed.

    \b
    penstock cluster drain 4 --dry-run
    penstock cluster drain 4 --throttle 50000000
    penstock cluster drain 4 --undo
    """
    manner = Manner(throttle, dry_run, no_wait, yes, format)

    async def work(session: CommandSession) -> None:
        from penstock.client.admin.admin import BROKER, Admin
        from penstock.cluster.controller import rebalance_plan

        admin = Admin(session.cluster)
        if undo:
            if not dry_run:
                await admin.alter_configs(BROKER, str(node), deletes=[CORDONED])
            print(f"node {node} {'would accept' if dry_run else 'accepts'} replicas again")
            return
        layout = await select(session, ())
        racks = await open_racks(session)
        if node not in session.cluster.metadata.brokers and not any(
            node in nodes for nodes in layout.values()
        ):
            raise UserError(f"node {node} does not exist; see `penstock cluster describe`")
        plan = rebalance_plan.evacuate(layout, racks, {node})
        if not dry_run:
            confirm(f"Move {len(plan)} partitions off node {node} and keep it empty?", yes)
            # A node that is down gets no new replicas.
            if node in session.cluster.metadata.brokers:
                await admin.alter_configs(BROKER, str(node), {CORDONED: "*"})
        await carry_out(session, plan, layout, replace(manner, yes=True))

    run(brokers, work)


COMMANDS = (reassign, elect, drain)
