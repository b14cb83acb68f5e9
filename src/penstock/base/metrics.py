"""Metrics at the cost of one attribute access and one addition.

The hot path does `counter.value += n`. Names, meanings and labels are declared once, in a
catalogue; `penstock.gateway.http.metrics` renders it in the Prometheus text format for a scrape.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


class Counter:
    """Counter that only grows, or gauge that is set."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


# Seconds: from a tenth of a millisecond to ten seconds.
SECONDS_BUCKETS = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 10.0)
# Seconds: from ten milliseconds to a day, for the age of messages.
AGE_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 3600.0, 86_400.0)


class Histogram:
    """Histogram: number of observations at or below each bound, plus their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = SECONDS_BUCKETS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


Sample = tuple[tuple[str, ...], "float | Histogram"]
"""Label values, and the number or the distribution."""


@dataclass(slots=True)
class Family:
    """Metric of the catalogue with its labelled children."""

    name: str
    kind: str  # "counter", "gauge" or "histogram"
    help: str
    labels: tuple[str, ...] = ()
    children: dict[tuple[str, ...], Counter | Histogram] = field(default_factory=dict)
    read: Callable[[], Iterable[Sample]] | None = None
    """Computes the samples at scrape time; replaces `children`."""
    bounds: tuple[float, ...] = SECONDS_BUCKETS
    """Bucket bounds of a histogram."""

    def counter(self, *labels: str) -> Counter:
        child = self.children.get(labels)
        if child is None:
            child = self.children[labels] = Counter()
        assert isinstance(child, Counter)
        return child

    def histogram(self, *labels: str) -> Histogram:
        child = self.children.get(labels)
        if child is None:
            child = self.children[labels] = Histogram(self.bounds)
        assert isinstance(child, Histogram)
        return child


class Catalogue:
    """All metrics of a node by name."""

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}

    def add(
        self,
        name: str,
        kind: str,
        help: str,
        labels: tuple[str, ...] = (),
        read: Callable[[], Iterable[Sample]] | None = None,
        bounds: tuple[float, ...] = SECONDS_BUCKETS,
    ) -> Family:
        assert name not in self.families, f"metric {name} declared twice"
        family = self.families[name] = Family(name, kind, help, labels, read=read, bounds=bounds)
        return family
