"""Samples of the last hour and of the last day, also kept while the console is not used.

Each period has samples at its own distance, a full one for every offset, lag and depth, so that a
viewer can be shown only what the viewer may describe. Nothing is written to disk: a restart begins
a new history.

Bounds: `HOUR.points` and `DAY.points` samples. A sample takes 8 bytes for each value and shares its
names with the one before; with `sampler.NAMES_MAX` topics and readers all of it takes about 7 MiB.
"""

from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from penstock.gateway.console.sampler import GroupProgress, Sample, TopicReader
from penstock.gateway.core.cluster_types import PositionKind


@dataclass(frozen=True, slots=True)
class Period:
    step_s: float
    """Distance of the samples."""
    points: int


HOUR = Period(30.0, 120)
DAY = Period(300.0, 288)
EARLY_S = 1.0
"""A sample may come earlier than a step after the one before by this much."""


class _Row(NamedTuple):
    """Sample with its names apart from its values."""

    at_s: float
    at_ms: int
    topics: tuple[str, ...]
    written: "array[int]"
    readers: tuple[tuple[TopicReader, PositionKind], ...]
    lags: "array[int]"
    done: "array[int]"
    dead_topics: tuple[str, ...]
    dead: "array[int]"
    bytes_in: float
    bytes_out: float

    def expand(self) -> Sample:
        progress = {
            reader: GroupProgress(kind, lag, done)
            for (reader, kind), lag, done in zip(self.readers, self.lags, self.done, strict=True)
        }
        return Sample(
            self.at_s,
            self.at_ms,
            dict(zip(self.topics, self.written, strict=True)),
            progress,
            dict(zip(self.dead_topics, self.dead, strict=True)),
            self.bytes_in,
            self.bytes_out,
        )


class KeptSamples:
    """Samples of one period."""

    def __init__(self, period: Period) -> None:
        self.period = period
        self.rounds = 0
        """Number of samples so far."""
        self._rows: deque[_Row] = deque(maxlen=period.points + 1)

    def add(self, sample: Sample) -> None:
        """Keeps the sample, unless the last one is too recent."""
        last = self._rows[-1] if self._rows else None
        if last is not None and sample.at_s - last.at_s < self.period.step_s - EARLY_S:
            return
        topics = tuple(sample.written)
        readers = tuple((reader, one.kind) for reader, one in sample.progress.items())
        dead_topics = tuple(sample.dead)
        if last is not None:
            topics = last.topics if last.topics == topics else topics
            readers = last.readers if last.readers == readers else readers
            dead_topics = last.dead_topics if last.dead_topics == dead_topics else dead_topics
        self._rows.append(
            _Row(
                sample.at_s,
                sample.at_ms,
                topics,
                array("q", sample.written.values()),
                readers,
                array("q", (one.lag for one in sample.progress.values())),
                array("q", (one.done for one in sample.progress.values())),
                dead_topics,
                array("q", sample.dead.values()),
                sample.bytes_in,
                sample.bytes_out,
            )
        )
        self.rounds += 1

    def last(self, count: int) -> Iterator[Sample]:
        """Yields the last `count` samples, oldest first, or all there are; expands one at a time.

        Samples that are added meanwhile are not among them.
        """
        rows = list(self._rows)[-count:]
        return (row.expand() for row in rows)


class History:
    def __init__(self) -> None:
        self.hour = KeptSamples(HOUR)
        self.day = KeptSamples(DAY)

    def add(self, sample: Sample) -> None:
        self.hour.add(sample)
        self.day.add(sample)
