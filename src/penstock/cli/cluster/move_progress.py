"""Execution of a reassignment plan, with an optional throttle and progress.

A throttle is two configs (KIP-73): the bytes per second on every participating broker, and the
throttled replicas on every topic. Both are removed when the moves are done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.progress import Progress

if TYPE_CHECKING:
    from penstock.cli.terminal.session import CommandSession
    from penstock.client.metadata import TopicPartition

    Plan = Mapping[TopicPartition, tuple[int, ...]]

LOOK_SECONDS = 0.5
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
                await asyncio.sleep(LOOK_SECONDS)
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
