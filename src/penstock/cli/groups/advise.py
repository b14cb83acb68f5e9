"""`penstock group advise`: measures a group twice and proposes improvements.

Findings of `penstock group advise`, each with a proposal. Pure. A partition is stuck if it had lag
and its group reads nothing. Lag alone is not a fault: members commit every few seconds, so records
that were just read or written still count as lag. A group keeps up if its lag is short, or is read
within the target delay. A partition is hot if it gets several times its share of the records. A key
is hot if it has a large share of the newest records.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from penstock.cli.groups.arguments import require_group
from penstock.cli.terminal.name_completion import group_names
from penstock.cli.terminal.output import OutputFormat, format_option, print_data
from penstock.cli.terminal.session import CommandSession, brokers_option, run
from penstock.client.admin.scaling import (
    PartitionLag,
    Scaling,
    ScalingTarget,
    group_progress,
    scale,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.client.consumer.consumer import Consumer


HOT_TIMES = 3.0
"""A partition is hot from this multiple of its share on."""
HOT_RECORDS_MIN = 20
HOT_KEY_SHARE = 0.2
KEYS_SHOWN = 5
COMMIT_SECONDS = 10.0
"""Lag of this age, or a partition without commits for less, says nothing: Kafka's clients commit
every 5 s by default."""
READ_SHARE_MIN = 0.8
"""Share of the written records that a group reads while it keeps up."""
FindingPlace = tuple[str, int]


class Finding(NamedTuple):
    what: str
    proposal: str


class HotKey(NamedTuple):
    key: bytes
    share: float


def hot_partitions(
    before: Mapping[FindingPlace, PartitionLag], now: Mapping[FindingPlace, PartitionLag]
) -> list[FindingPlace]:
    """Returns partitions with several times their share of the written records, or of the lag."""
    found: list[FindingPlace] = []
    for topic in sorted({topic for topic, _ in now}):
        places = [place for place in now if place[0] == topic]
        for amounts in (
            {p: now[p].end - before[p].end for p in places if p in before},
            {p: now[p].lag for p in places},
        ):
            share = sum(amounts.values()) / max(1, len(amounts))
            hot = [
                place
                for place, amount in amounts.items()
                if amount >= HOT_RECORDS_MIN and len(amounts) > 1 and amount >= HOT_TIMES * share
            ]
            # Among two or three partitions none can have three times its share; 80 % is enough.
            if not hot and 1 < len(amounts) <= HOT_TIMES:
                total = sum(amounts.values())
                hot = [p for p, a in amounts.items() if a >= HOT_RECORDS_MIN and a > 0.8 * total]
            if hot:
                found += hot
                break
    return sorted(found)


def stuck_partitions(
    before: Mapping[FindingPlace, PartitionLag], now: Mapping[FindingPlace, PartitionLag]
) -> list[FindingPlace]:
    """Returns partitions that had lag before and in which nothing was read since."""
    stuck = [
        place
        for place, row in now.items()
        if row.lag and place in before and before[place].lag and row.done == before[place].done
    ]
    return sorted(stuck)


def keeps_up(
    before: Mapping[FindingPlace, PartitionLag],
    now: Mapping[FindingPlace, PartitionLag],
    seconds: float,
    target_s: float,
) -> bool:
    """True if these partitions are read about as fast as they are written, and soon enough."""
    common = [(before[place], row) for place, row in now.items() if place in before]
    lag = sum(row.lag for _, row in common)
    done = sum(row.done - first.done for first, row in common)
    written = sum(row.end - first.end for first, row in common)
    if done <= 0:
        return not any(first.lag for first, row in common if row.lag)
    delay_s = lag / done * seconds
    if delay_s <= min(COMMIT_SECONDS, target_s):
        return True
    return delay_s <= target_s and done >= READ_SHARE_MIN * written


def hot_keys(keys: Sequence[bytes | None]) -> list[HotKey]:
    """Returns keys with a large share of the sample, the largest first."""
    counted = Counter(key for key in keys if key is not None)
    total = len(keys)
    return [
        HotKey(key, count / total)
        for key, count in counted.most_common(KEYS_SHOWN)
        if count / total >= HOT_KEY_SHARE and count >= HOT_RECORDS_MIN
    ]


def conclude(
    before: Mapping[FindingPlace, PartitionLag],
    now: Mapping[FindingPlace, PartitionLag],
    members: int,
    scaling: Scaling,
    keys: Mapping[FindingPlace, Sequence[HotKey]],
    hot: Sequence[FindingPlace],
    *,
    seconds: float = COMMIT_SECONDS,
    target_s: float = 60.0,
) -> list[Finding]:
    findings: list[Finding] = []
    # Too short a measurement shows that nothing was committed, not that nothing was read.
    stuck = stuck_partitions(before, now) if seconds >= COMMIT_SECONDS else []
    lagging = [place for place, row in now.items() if row.lag]
    is_behind = not members or bool(stuck) or not keeps_up(before, now, seconds, target_s)
    if not members and lagging:
        findings.append(Finding("the group has no members", "start its consumers"))
    elif stuck and len(stuck) < len(lagging):
        findings.append(
            Finding(
                f"nothing is read from {_names(stuck)}, while other partitions advance",
                "inspect the first unread record (`penstock consume TOPIC -p PARTITION`): its "
                "handler may fail repeatedly; set a retry limit and use a dead-letter queue",
            )
        )
    elif stuck:
        findings.append(
            Finding(
                "nothing was read during the measurement",
                "check whether the consumers hang; measure longer with --seconds",
            )
        )
    findings += [
        _about_hot(place, keys.get(place, ()))
        for place in hot
        if not keeps_up(
            {place: before[place]} if place in before else {},
            {place: now[place]},
            seconds,
            target_s,
        )
    ]
    partitions = len(now)
    if members > partitions:
        findings.append(
            Finding(
                f"{members - partitions} of {members} members have no partition",
                f"stop them, or raise the number of partitions above {partitions}",
            )
        )
    if scaling.desired > members and is_behind:
        count = f"{scaling.desired} member{'' if scaling.desired == 1 else 's'}"
        findings.append(
            Finding(
                f"{count} would suffice ({scaling.reason})",
                f"add {scaling.desired - members}",
            )
        )
    return findings


def _about_hot(place: FindingPlace, keys: Sequence[HotKey]) -> Finding:
    name = f"{place[0]}-{place[1]}"
    if keys:
        shown = ", ".join(f"{show_key(one.key)} ({one.share:.0%})" for one in keys)
        return Finding(
            f"{name} is hot because of {'a key' if len(keys) == 1 else 'keys'}: {shown}",
            "spread the hot key over several partitions with `penstock.app.salting`, or read the "
            "topic as a queue (a share group), where one partition feeds many consumers",
        )
    return Finding(
        f"{name} is hot, and no single key is",
        "check the producers' partitioner, or add partitions (`penstock topic alter`)",
    )


def show_key(key: bytes) -> str:
    """Shows a key as short printable text."""
    text = key.decode(errors="backslashreplace")
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text if len(text) <= 40 else text[:39] + "…"


def _names(places: Sequence[FindingPlace]) -> str:
    shown = ", ".join(f"{topic}-{index}" for topic, index in places[:5])
    return f"{shown} and {len(places) - 5} more" if len(places) > 5 else shown


SAMPLE_RECORDS = 2_000
"""Newest records of a hot partition whose keys are sampled."""
SAMPLE_SECONDS = 5.0
SAMPLED_MAX = 5
"""Hot partitions whose keys are sampled."""


@dataclasses.dataclass(frozen=True)
class AdviseReport:
    members: int
    rows: dict[FindingPlace, PartitionLag]
    scaling: Scaling
    hot: list[FindingPlace]
    keys: dict[FindingPlace, list[HotKey]]
    findings: list[Finding]


@click.command("advise")
@click.argument("name", help="The group.", shell_complete=group_names)
@click.option(
    "--seconds",
    type=click.FloatRange(1, 3600),
    default=10.0,
    show_default=True,
    help="Duration of the measurement.",
)
@click.option(
    "--target-delay",
    type=click.FloatRange(1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Acceptable waiting time of a record.",
)
@brokers_option
@format_option
def advise(
    name: str, seconds: float, target_delay: float, brokers: str, format: OutputFormat
) -> None:
    """Explain why a group is behind, and what would help.

    Measures the lag twice and compares the write rates of partitions. Reports the number of members
    needed, stuck partitions, hot partitions and hot keys. Changes nothing.

    \b
    penstock group advise billing
    penstock group advise billing --seconds 60 --target-delay 300
    """

    async def work(session: CommandSession) -> AdviseReport:
        return await _advise(session, name, seconds, target_delay)

    found = run(brokers, work)
    if format.is_data:
        print_data(_document(name, found), format)
    else:
        _show(name, found)


async def _advise(
    session: CommandSession, name: str, seconds: float, target_s: float
) -> AdviseReport:
    import asyncio

    from penstock.cli.terminal.progress import Progress

    await require_group(session, name)
    loop = asyncio.get_running_loop()
    first = await _rows(session, name)
    before = group_progress(loop.time(), first)
    with Progress(f"measuring {name}", round(seconds), "seconds") as progress:
        for _ in range(round(seconds)):
            await asyncio.sleep(seconds / round(seconds))
            progress.advance()
    info = await require_group(session, name)
    rows = await _rows(session, name)
    now = group_progress(loop.time(), rows)
    members = len(info.members)
    scaling = scale(before, now, members, ScalingTarget(target_s=target_s))
    hot = hot_partitions(first, rows)
    keys = {
        place: hot_keys(await _sample(session, place, rows[place])) for place in hot[:SAMPLED_MAX]
    }
    findings = conclude(
        first,
        rows,
        members,
        scaling,
        keys,
        hot,
        seconds=now.at_s - before.at_s,
        target_s=target_s,
    )
    return AdviseReport(members, rows, scaling, hot, keys, findings)


async def _rows(session: CommandSession, name: str) -> dict[FindingPlace, PartitionLag]:
    from penstock.client.committed_offsets import committed_offsets
    from penstock.client.list_offsets import LATEST, list_offsets

    committed = await committed_offsets(session.cluster, name)
    await session.cluster.refresh({where.topic for where in committed})
    led = [where for where in committed if session.cluster.metadata.leader_of(where) >= 0]
    ends = await list_offsets(session.cluster, dict.fromkeys(led, LATEST))
    return {
        (where.topic, where.partition): PartitionLag(committed[where].offset, ends[where].offset)
        for where in led
        if where in ends
    }


async def _sample(
    session: CommandSession, place: FindingPlace, row: PartitionLag
) -> list[bytes | None]:
    """Returns the keys of a partition's newest records."""
    from penstock.client.consumer.consumer import ConsumerConfig
    from penstock.client.list_offsets import EARLIEST
    from penstock.client.metadata import TopicPartition

    where = TopicPartition(*place)
    consumer = session.consumer(ConsumerConfig(reset=EARLIEST))
    async with consumer:
        consumer.assign({where: max(0, row.end - SAMPLE_RECORDS)})
        return await _read_keys(consumer, row.end)


async def _read_keys(consumer: Consumer, end: int) -> list[bytes | None]:
    import asyncio

    keys: list[bytes | None] = []
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SAMPLE_SECONDS
    while len(keys) < SAMPLE_RECORDS and loop.time() < deadline:
        for fetched in await consumer.fetch(timeout_ms=1_000):
            keys += [message.key for message in fetched.messages()]
            if fetched.next_offset >= end:
                return keys[-SAMPLE_RECORDS:]
    return keys[:SAMPLE_RECORDS]


def _document(name: str, found: AdviseReport) -> dict[str, Any]:
    return {
        "group": name,
        "members": found.members,
        "lag": sum(row.lag for row in found.rows.values()),
        **dataclasses.asdict(found.scaling),
        "hot_partitions": [
            {
                "topic": place[0],
                "partition": place[1],
                "lag": found.rows[place].lag,
                "hot_keys": [
                    {"key": show_key(one.key), "share": one.share}
                    for one in found.keys.get(place, ())
                ],
            }
            for place in found.hot
        ],
        "findings": [one._asdict() for one in found.findings],
    }


def _show(name: str, found: AdviseReport) -> None:
    scaling = found.scaling
    lag = sum(row.lag for row in found.rows.values())
    print(f"group    {name}")
    print(f"members  {found.members}")
    print(f"lag      {lag:,} records in {len(found.rows)} partitions")
    if scaling.read_per_s is not None:
        print(f"reads    {scaling.read_per_s:,.1f} records/s, {scaling.written_per_s:,.1f} written")
    print()
    if not found.findings:
        print("nothing to improve: the group keeps up")
    for finding in found.findings:
        print(f"- {finding.what}")
        print(f"  -> {finding.proposal}")
