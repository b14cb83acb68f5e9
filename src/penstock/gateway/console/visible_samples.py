"""What one person may see of the samples: rates, lag and depths, as far as their rights go.

A view is kept for each principal and grows by one point with each look, so that many viewers with
the same rights cost what one does. Pure reckoning on `sampler.Sample`s; the rights are asked of the
authorizer when a point is made.

Bounds: `VIEWS_MAX` views, those asked for last.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from msgspec import Struct

from penstock.gateway.console.sampler import SAMPLES_MAX, GroupLine, Sample, TopicReader
from penstock.gateway.core.caller import Principal
from penstock.gateway.core.cluster_types import PositionKind

VIEWS_MAX = 64
TREND_SECONDS = 60.0
STEADY_PER_S = 0.01

Sees = Callable[[str], bool]


class Series(Struct):
    """One value for each look, oldest first."""

    at_ms: list[int]
    records_in: list[float]
    records_out: list[float]
    lag: list[int]
    waiting: list[int]
    dead: list[int]
    bytes_in: list[float]
    bytes_out: list[float]


class Trend(Struct):
    """Where a lag is going."""

    lag: int
    per_s: float
    """How fast it grows; below 0: it shrinks."""
    read_per_s: float | None
    """None: not known yet."""
    eta_s: float | None
    """When it will be read up at this pace; None: never, or it is now."""
    recent: list[int]


@dataclass(slots=True)
class Point:
    at_ms: int
    records_in: float
    records_out: float
    lag: int
    waiting: int
    dead: int
    bytes_in: float
    bytes_out: float


@dataclass(slots=True)
class View:
    points: deque[Point] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))
    looks: int = 0
    body: bytes = b""
    body_looks: int = -1


class Views:
    """Views by principal."""

    def __init__(self) -> None:
        self._views: OrderedDict[Principal, View] = OrderedDict()
        self._rules: object = None

    def of(self, principal: Principal, rules: object) -> View:
        """`rules` is another object when somebody's rights have changed: then all begin anew."""
        if self._rules is not rules:
            self._rules = rules
            self._views.clear()
        view = self._views.setdefault(principal, View())
        self._views.move_to_end(principal)
        while len(self._views) > VIEWS_MAX:
            self._views.popitem(last=False)
        return view


def grow(
    view: View, samples: Sequence[Sample], looks: int, sees_topic: Sees, sees_group: Sees
) -> None:
    """Adds the points of looks that the view has not seen yet."""
    missing = min(looks - view.looks, len(samples) - 1)
    for at in range(len(samples) - missing, len(samples)):
        view.points.append(point_of(samples[at - 1], samples[at], sees_topic, sees_group))
    view.looks = looks


def point_of(before: Sample, now: Sample, sees_topic: Sees, sees_group: Sees) -> Point:
    seconds = max(now.at_s - before.at_s, 0.001)
    written = sum(
        max(0, count - before.written[topic])
        for topic, count in now.written.items()
        if topic in before.written and sees_topic(topic)
    )
    seen = {
        reader: line
        for reader, line in now.lines.items()
        if sees_group(reader[0]) and sees_topic(reader[1])
    }
    read = sum(
        max(0, line.done - before.lines[reader].done)
        for reader, line in seen.items()
        if reader in before.lines
    )
    return Point(
        now.at_ms,
        written / seconds,
        read / seconds,
        sum(line.lag for line in seen.values() if line.kind is PositionKind.CONSUMER),
        sum(line.lag for line in seen.values() if line.kind is PositionKind.SHARE),
        sum(count for topic, count in now.dead.items() if sees_topic(topic)),
        (now.bytes_in - before.bytes_in) / seconds,
        (now.bytes_out - before.bytes_out) / seconds,
    )


def series_of(points: Sequence[Point]) -> Series:
    return Series(
        [point.at_ms for point in points],
        [round(point.records_in, 2) for point in points],
        [round(point.records_out, 2) for point in points],
        [point.lag for point in points],
        [point.waiting for point in points],
        [point.dead for point in points],
        [round(point.bytes_in) for point in points],
        [round(point.bytes_out) for point in points],
    )


def _recent(samples: Sequence[Sample]) -> list[Sample]:
    """Those of the last minute, oldest first."""
    last_s = samples[-1].at_s
    return [sample for sample in samples if last_s - sample.at_s <= TREND_SECONDS]


def rate_of(samples: Sequence[Sample], topic: str) -> float | None:
    """Records a second that were written to a topic, over the last minute; None: not known yet."""
    known = [one for one in _recent(samples) if topic in one.written]
    if len(known) < 2:
        return None
    grown = known[-1].written[topic] - known[0].written[topic]
    return round(max(0, grown) / max(known[-1].at_s - known[0].at_s, 0.001), 2)


def written_lately(samples: Sequence[Sample], topic: str) -> list[float]:
    """The rates of the last minute, one for each look."""
    known = [one for one in _recent(samples) if topic in one.written]
    return [
        round(max(0, b.written[topic] - a.written[topic]) / max(b.at_s - a.at_s, 0.001), 2)
        for a, b in pairwise(known)
    ]


def trend_of(samples: Sequence[Sample], readers: Sequence[TopicReader]) -> Trend:
    """Where the lag of a group is going, over some topics."""
    recent = _recent(samples) if samples else []
    known = [[one.lines.get(reader) for reader in readers] for one in recent]
    lags = [sum(line.lag for line in lines if line is not None) for lines in known]
    lag = lags[-1] if lags else 0
    whole = [at for at, lines in enumerate(known) if None not in lines]
    if len(whole) < 2:
        return Trend(lag, 0.0, None, None, lags)
    first, last = whole[0], whole[-1]
    seconds = max(recent[last].at_s - recent[first].at_s, 0.001)
    per_s = (lags[last] - lags[first]) / seconds
    read = (_done(known[last]) - _done(known[first])) / seconds
    is_shrinking = lag and per_s < -STEADY_PER_S
    return Trend(
        lag, round(per_s, 2), round(max(0.0, read), 2), lag / -per_s if is_shrinking else None, lags
    )


def _done(lines: Sequence[GroupLine | None]) -> int:
    return sum(line.done for line in lines if line is not None)


def readers_of(lines: Mapping[TopicReader, GroupLine]) -> dict[str, list[TopicReader]]:
    """The topics of each group."""
    found: dict[str, list[TopicReader]] = {}
    for reader in sorted(lines):
        found.setdefault(reader[0], []).append(reader)
    return found
