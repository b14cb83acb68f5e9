"""Permission checks of a viewer, for the console's pages.

Time series of rates, lag and depths, limited to what a principal may describe. Each principal has
a view that grows by one point per sample, so many viewers with the same principal cost as much as
one. Pure computation on `sampler.Sample`s; permissions are checked when a point is added.

Bounds: the `VIEWS_MAX` views used last.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from msgspec import Struct
from starlette.requests import Request

from penstock.broker.api.context import Context
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.gateway.console.history import KeptSamples
from penstock.gateway.console.sampler import GroupProgress, Sample, TopicReader
from penstock.gateway.core.cluster_types import PositionKind
from penstock.gateway.core.permissions import Principal, may
from penstock.gateway.http.request_io import principal_of

VIEWS_MAX = 64
TREND_SECONDS = 60.0
STEADY_PER_S = 0.01
STEP = 10
"""Points computed between two yields to the event loop."""

Sees = Callable[[str], bool]


class Series(Struct):
    """One value per sample, oldest first."""

    at_ms: list[int]
    records_in: list[float]
    records_out: list[float]
    lag: list[int]
    waiting: list[int]
    dead: list[int]
    bytes_in: list[float]
    bytes_out: list[float]


class Trend(Struct):
    """Lag and its trend."""

    lag: int
    per_s: float
    """Growth of the lag per second; negative while it shrinks."""
    read_per_s: float | None
    """Records read per second; None if not known yet."""
    eta_s: float | None
    """Seconds until the lag is 0 at this pace; None: never, or it is 0."""
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
    points: deque[Point]
    rounds: int = 0
    body: bytes = b""
    body_rounds: int = -1


class Views:
    """Views by principal, each of the last `points_max` samples."""

    def __init__(self, points_max: int) -> None:
        self._points_max = points_max
        self._views: OrderedDict[Principal, View] = OrderedDict()
        self._rules: object = None

    def of(self, principal: Principal, rules: object) -> View:
        """Returns a principal's view. Another `rules` object means that permissions have changed,
        which resets all views."""
        if self._rules is not rules:
            self._rules = rules
            self._views.clear()
        view = self._views.setdefault(principal, View(deque(maxlen=self._points_max)))
        self._views.move_to_end(principal)
        while len(self._views) > VIEWS_MAX:
            self._views.popitem(last=False)
        return view


def grow(
    view: View, samples: Sequence[Sample], rounds: int, sees_topic: Sees, sees_group: Sees
) -> None:
    """Adds the points of samples that the view does not have yet."""
    missing = min(rounds - view.rounds, len(samples) - 1)
    for at in range(len(samples) - missing, len(samples)):
        view.points.append(point_of(samples[at - 1], samples[at], sees_topic, sees_group))
    view.rounds = rounds


async def grow_history(view: View, kept: KeptSamples, sees_topic: Sees, sees_group: Sees) -> None:
    """Adds the points of kept samples that the view does not have yet, in small steps."""
    began, rounds = view.rounds, kept.rounds
    sees_topic, sees_group = cache(sees_topic), cache(sees_group)
    points = []
    for before, now in pairwise(kept.last(rounds - began + 1)):
        points.append(point_of(before, now, sees_topic, sees_group))
        if not len(points) % STEP:
            await asyncio.sleep(0)
    if view.rounds == began:  # Otherwise another request of this principal was first.
        view.points.extend(points)
        view.rounds = rounds


def point_of(before: Sample, now: Sample, sees_topic: Sees, sees_group: Sees) -> Point:
    seconds = max(now.at_s - before.at_s, 0.001)
    written = sum(
        max(0, count - before.written[topic])
        for topic, count in now.written.items()
        if topic in before.written and sees_topic(topic)
    )
    seen = {
        reader: one
        for reader, one in now.progress.items()
        if sees_group(reader[0]) and sees_topic(reader[1])
    }
    read = sum(
        max(0, one.done - before.progress[reader].done)
        for reader, one in seen.items()
        if reader in before.progress
    )
    return Point(
        now.at_ms,
        written / seconds,
        read / seconds,
        sum(one.lag for one in seen.values() if one.kind is PositionKind.CONSUMER),
        sum(one.lag for one in seen.values() if one.kind is PositionKind.SHARE),
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
    """Returns the samples of the last minute, oldest first."""
    last_s = samples[-1].at_s
    return [sample for sample in samples if last_s - sample.at_s <= TREND_SECONDS]


def rate_of(samples: Sequence[Sample], topic: str) -> float | None:
    """Returns the records per second written to a topic in the last minute; None if unknown."""
    known = [one for one in _recent(samples) if topic in one.written]
    if len(known) < 2:
        return None
    grown = known[-1].written[topic] - known[0].written[topic]
    return round(max(0, grown) / max(known[-1].at_s - known[0].at_s, 0.001), 2)


def written_lately(samples: Sequence[Sample], topic: str) -> list[float]:
    """Returns the rates of the last minute, one per sample."""
    known = [one for one in _recent(samples) if topic in one.written]
    return [
        round(max(0, b.written[topic] - a.written[topic]) / max(b.at_s - a.at_s, 0.001), 2)
        for a, b in pairwise(known)
    ]


def trend_of(samples: Sequence[Sample], readers: Sequence[TopicReader]) -> Trend:
    """Returns the lag of a group and its trend, summed over `readers`."""
    recent = _recent(samples) if samples else []
    known = [[one.progress.get(reader) for reader in readers] for one in recent]
    lags = [sum(one.lag for one in rows if one is not None) for rows in known]
    lag = lags[-1] if lags else 0
    whole = [at for at, rows in enumerate(known) if None not in rows]
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


def _done(rows: Sequence[GroupProgress | None]) -> int:
    return sum(one.done for one in rows if one is not None)


def readers_of(rows: Mapping[TopicReader, GroupProgress]) -> dict[str, list[TopicReader]]:
    """Groups readers by group."""
    found: dict[str, list[TopicReader]] = {}
    for reader in sorted(rows):
        found.setdefault(reader[0], []).append(reader)
    return found


CLUSTER_NAME = "kafka-cluster"


@dataclass(frozen=True, slots=True)
class Visibility:
    ctx: Context
    principal: Principal

    def topic(self, name: str, operation: Operation = Operation.DESCRIBE) -> bool:
        return may(self.ctx, self.principal, operation, ResourceType.TOPIC, name)

    def group(self, name: str, operation: Operation = Operation.DESCRIBE) -> bool:
        return may(self.ctx, self.principal, operation, ResourceType.GROUP, name)

    def cluster(self, operation: Operation = Operation.DESCRIBE) -> bool:
        return may(self.ctx, self.principal, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def visibility_of(ctx: Context, request: Request) -> Visibility:
    return Visibility(ctx, principal_of(request))
