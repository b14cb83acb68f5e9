"""How many consumers a group needs: from its lag, what comes in, and what one of them gets done.

Pure. A `GroupStanding` is a group at one moment; two of them give rates. A group must read what
comes in and, within the target delay, what has gathered: that, divided by what one member reads
when it is busy, is how many members there should be. More members than partitions would have
nothing to do, except in a queue. Where the rate is not known, or members are there and nothing
moves, more of them are no answer, and the advice is to leave it at that.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

SPAN_SECONDS_MIN = 1.0
"""Rates over less than this say nothing."""


class PartitionLag(NamedTuple):
    """A partition: how much of it the group is done with, and where it ends."""

    done: int
    end: int

    @property
    def lag(self) -> int:
        return max(0, self.end - self.done)


class GroupStanding(NamedTuple):
    """A group at one moment. Sums are enough for rates, as long as the partitions are the same."""

    at_s: float
    partitions: int
    done: int
    end: int
    lag: int
    largest_lag: int


def standing(at_s: float, rows: Mapping[tuple[str, int], PartitionLag]) -> GroupStanding:
    return GroupStanding(
        at_s,
        len(rows),
        sum(row.done for row in rows.values()),
        sum(row.end for row in rows.values()),
        sum(row.lag for row in rows.values()),
        max((row.lag for row in rows.values()), default=0),
    )


@dataclass(frozen=True, slots=True)
class ScalingTarget:
    """What whoever asks wants."""

    target_s: float = 60.0
    """How old a record may be when it is read."""
    low: int = 0
    high: int = 1_000
    rate: float | None = None
    """What one member reads in a second, if it is known better than by measuring."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """How many members there should be, and why."""

    desired: int
    reason: str
    read_per_s: float | None = None
    written_per_s: float | None = None
    member_per_s: float | None = None


def rates(before: GroupStanding | None, now: GroupStanding) -> tuple[float, float] | None:
    """Records read and written in a second; None where that cannot be told."""
    if before is None or before.partitions != now.partitions:
        return None
    span_s = now.at_s - before.at_s
    if span_s < SPAN_SECONDS_MIN or now.done < before.done or now.end < before.end:
        return None  # Moved back by hand, or another topic of the same size.
    return (now.done - before.done) / span_s, (now.end - before.end) / span_s


def scale(
    before: GroupStanding | None,
    now: GroupStanding,
    members: int,
    wish: ScalingTarget,
    *,
    is_queue: bool = False,
    known_rate: float | None = None,
) -> Scaling:
    """`known_rate`: what one member was seen to read earlier, when it was busy."""
    limit = wish.high if is_queue else min(wish.high, max(now.partitions, wish.low))
    measured = rates(before, now)
    if measured is None:
        wanted, reason = _hold(members, now, "rates are not known yet: ask again")
        if wish.rate:
            wanted = math.ceil(now.lag / wish.target_s / wish.rate)
            reason = "by the lag and the rate given; what comes in is not known yet"
        return Scaling(_clamp(wanted, wish.low, limit), reason, member_per_s=wish.rate)
    read_per_s, written_per_s = measured
    was_busy = before is not None and before.lag > 0 and now.lag > 0
    seen = read_per_s / members if members and was_busy else 0.0
    member_per_s = wish.rate or seen or max(known_rate or 0.0, read_per_s / max(members, 1))
    if not now.lag and not written_per_s:
        wanted, reason = 0, "nothing to do"
    elif members and was_busy and not read_per_s and not wish.rate:
        wanted, reason = members, "its members read nothing: more of them would not either"
    elif not member_per_s:
        wanted, reason = _hold(members, now, "what a member reads is not known yet")
    else:
        needed = written_per_s + now.lag / wish.target_s
        wanted = math.ceil(round(needed / member_per_s, 6))
        reason = f"{needed:.1f} records/s to read, {member_per_s:.1f} by one member"
        if wanted > limit and not is_queue and limit == now.partitions:
            reason += f"; the topic has {limit} partitions"
    return Scaling(
        _clamp(wanted, wish.low, limit), reason, read_per_s, written_per_s, member_per_s or None
    )


def _hold(members: int, now: GroupStanding, reason: str) -> tuple[int, str]:
    return max(members, 1 if now.lag else 0), reason


def _clamp(wanted: int, low: int, high: int) -> int:
    return max(low, min(wanted, max(high, low)))
