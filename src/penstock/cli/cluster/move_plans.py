"""Reassignment plans: read from a file or computed for a goal, shown, and executed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from penstock.cli.terminal.confirm import confirm
from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.output import OutputFormat, print_data, print_table
from penstock.cli.terminal.session import CommandSession, require_topics

if TYPE_CHECKING:
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
    from penstock.cli.cluster.move_progress import read_layout

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
    from penstock.cli.cluster import move_progress

    copies = sum(node not in layout.get(place, ()) for place in plan for node in plan[place])
    if manner.dry_run or not plan:
        _print_plan(plan, layout, copies, manner.format)
        return
    if not manner.format.is_data:
        _print_plan(plan, layout, copies, manner.format)
    confirm(f"Move {len(plan)} partitions?", manner.yes)
    await move_progress.begin(session, plan, layout, manner.throttle)
    if not manner.no_wait:
        await move_progress.finish(session, plan)
        if manner.throttle is not None:
            await move_progress.clear_throttle(session)
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
