"""Number of consumers a group needs, from its lag, its input and the rate of one member.

Pure. A `GroupProgress` is the state of a group at one time; two of them give rates. A group must
read its input and, within the target delay, its lag. The sum, divided by the rate of one busy
member, is the number of members needed. More members than partitions would be idle, except in a
queue. If the rate is unknown, or if members read nothing, the advice is to keep the current number.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

SPAN_SECONDS_MIN = 1.0
"""Shortest interval for rates, in seconds; shorter ones are meaningless."""


class PartitionLag(NamedTuple):
    """Progress of a group in a partition, and the end of the partition."""

    done: int
    end: int

    @property
    def lag(self) -> int:
        return max(0, self.end - self.done)


class GroupProgress(NamedTuple):
    """State of a group at one time. Sums suffice for rates while the partitions are the same."""

    at_s: float
    partitions: int
    done: int
    end: int
    lag: int
    largest_lag: int


def group_progress(at_s: float, rows: Mapping[tuple[str, int], PartitionLag]) -> GroupProgress:
    return GroupProgress(
        at_s,
        len(rows),
        sum(row.done for row in rows.values()),
        sum(row.end for row in rows.values()),
        sum(row.lag for row in rows.values()),
        max((row.lag for row in rows.values()), default=0),
    )


@dataclass(frozen=True, slots=True)
class ScalingTarget:
    """Target delay, limits of the number of members, and a known rate."""

    target_s: float = 60.0
    """Maximum age of a record when it is read, in seconds."""
    low: int = 0
    high: int = 1_000
    rate: float | None = None
    """Records that one member reads per second, if known; otherwise it is measured."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """Recommended number of members, with the reason."""

    desired: int
    reason: str
    read_per_s: float | None = None
    written_per_s: float | None = None
    member_per_s: float | None = None


def rates(before: GroupProgress | None, now: GroupProgress) -> tuple[float, float] | None:
    """Returns records read and written per second; None if unknown."""
    if before is None or before.partitions != now.partitions:
        return None
    span_s = now.at_s - before.at_s
    if span_s < SPAN_SECONDS_MIN or now.done < before.done or now.end < before.end:
        return None  # Offsets were reset, or this is another topic of the same size.
    return (now.done - before.done) / span_s, (now.end - before.end) / span_s


def scale(
    before: GroupProgress | None,
    now: GroupProgress,
    members: int,
    target: ScalingTarget,
    *,
    is_queue: bool = False,
    known_rate: float | None = None,
) -> Scaling:
    """Recommends a number of members. `known_rate`: earlier rate of one busy member."""
    limit = target.high if is_queue else min(target.high, max(now.partitions, target.low))
    measured = rates(before, now)
    if measured is None:
        wanted, reason = _keep_members(members, now, "rates are unknown: measure again")
        if target.rate:
            wanted = math.ceil(now.lag / target.target_s / target.rate)
            reason = "from the lag and the given rate; the input rate is unknown"
        return Scaling(_clamp(wanted, target.low, limit), reason, member_per_s=target.rate)
    read_per_s, written_per_s = measured
    was_busy = before is not None and before.lag > 0 and now.lag > 0
    seen = read_per_s / members if members and was_busy else 0.0
    member_per_s = target.rate or seen or max(known_rate or 0.0, read_per_s / max(members, 1))
    if not now.lag and not written_per_s:
        wanted, reason = 0, "no records to read"
    elif members and was_busy and not read_per_s and not target.rate:
        wanted, reason = members, "its members read nothing: more members would not help"
    elif not member_per_s:
        wanted, reason = _keep_members(members, now, "the rate of a member is unknown")
    else:
        needed = written_per_s + now.lag / target.target_s
        wanted = math.ceil(round(needed / member_per_s, 6))
        reason = f"{needed:.1f} records/s to read, {member_per_s:.1f} by one member"
        if wanted > limit and not is_queue and limit == now.partitions:
            reason += f"; the topic has {limit} partitions"
    return Scaling(
        _clamp(wanted, target.low, limit), reason, read_per_s, written_per_s, member_per_s or None
    )


def _keep_members(members: int, now: GroupProgress, reason: str) -> tuple[int, str]:
    return max(members, 1 if now.lag else 0), reason


def _clamp(wanted: int, low: int, high: int) -> int:
    return max(low, min(wanted, max(high, low)))
