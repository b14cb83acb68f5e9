"""Findings of `penstock group advise`, each with a proposal. Pure.

A partition is stuck if it has lag and its group reads nothing. A partition is hot if it gets
several times its share of the records. A key is hot if it has a large share of the newest records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.client.admin.scaling import PartitionLag, Scaling

HOT_TIMES = 3.0
"""A partition is hot from this multiple of its share on."""
HOT_RECORDS_MIN = 20
HOT_KEY_SHARE = 0.2
KEYS_SHOWN = 5
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
    """Returns partitions with lag in which nothing was read between the measurements."""
    stuck = [p for p, row in now.items() if row.lag and p in before and row.done == before[p].done]
    return sorted(stuck)


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
) -> list[Finding]:
    findings: list[Finding] = []
    stuck = stuck_partitions(before, now)
    lagging = [place for place, row in now.items() if row.lag]
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
    findings += [_about_hot(place, keys.get(place, ())) for place in hot]
    partitions = len(now)
    if members > partitions:
        findings.append(
            Finding(
                f"{members - partitions} of {members} members have no partition",
                f"stop them, or raise the number of partitions above {partitions}",
            )
        )
    if scaling.desired != members:
        verb = "add" if scaling.desired > members else "stop"
        count = f"{scaling.desired} member{'' if scaling.desired == 1 else 's'}"
        findings.append(
            Finding(
                f"{count} would suffice ({scaling.reason})",
                f"{verb} {abs(scaling.desired - members)}",
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
