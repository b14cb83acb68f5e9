"""Counters of events in this node's queues, updated from persisted operations.

The time to acknowledgement is sampled: of each delivery the first record is tracked until it is
finished, or is no longer leased to that consumer. Bounds: `SAMPLES_MAX` at a time; further ones are
not tracked, and those older than `SAMPLE_MS_MAX` are dropped.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.base.metrics import AGE_BUCKETS, Histogram
from penstock.state.queues.delivery_state import (
    ArchivedRecord,
    DeadLettersWritten,
    Finished,
    LeasedRange,
    Op,
    Released,
    Returned,
)
from penstock.state.queues.state_shard import QueueKey

SAMPLES_MAX = 10_000
SAMPLE_MS_MAX = 24 * 3_600_000


class QueueSample(NamedTuple):
    delivered_ms: int
    age_s: float
    """Age of the record at delivery."""


@dataclass(slots=True)
class QueueCounters:
    """Records since the node started."""

    delivered: int = 0
    finished: int = 0
    released: int = 0
    given_up: int = 0
    dead_lettered: int = 0
    """Batches of dead letters."""
    ack_seconds: Histogram = field(default_factory=lambda: Histogram(AGE_BUCKETS), compare=False)
    """Seconds from delivery to acknowledgement."""
    acked_age: Histogram = field(default_factory=lambda: Histogram(AGE_BUCKETS), compare=False)
    """Seconds from production to acknowledgement."""
    _samples: dict[QueueKey, dict[int, QueueSample]] = field(default_factory=dict)
    _count: int = 0

    def sample(self, key: QueueKey, offset: int, now_ms: int, age_s: float) -> None:
        """Starts to track a delivered record until it is finished."""
        if self._count >= SAMPLES_MAX:
            self._forget_old(now_ms)
            if self._count >= SAMPLES_MAX:
                return
        samples = self._samples.setdefault(key, {})
        self._count += offset not in samples
        samples[offset] = QueueSample(now_ms, age_s)

    def note(self, ops: Iterable[Op], key: QueueKey | None = None, now_ms: int = 0) -> None:
        samples = self._samples.get(key) if key is not None else None
        for op in ops:
            match op:
                case LeasedRange():
                    self.delivered += sum(lease.last - lease.first + 1 for lease in op.leases)
                case Returned():
                    self.delivered -= op.last - op.first + 1
                    if samples:
                        self._take(samples, op.first, op.last)
                case Finished():
                    self.finished += op.last - op.first + 1
                    if samples:
                        for one in self._take(samples, op.first, op.last):
                            held_s = max(0, now_ms - one.delivered_ms) / 1000
                            self.ack_seconds.observe(held_s)
                            self.acked_age.observe(one.age_s + held_s)
                case Released():
                    self.released += op.last - op.first + 1
                    if samples:
                        self._take(samples, op.first, op.last)
                case ArchivedRecord():
                    self.given_up += 1
                case DeadLettersWritten():
                    self.dead_lettered += 1
        if samples is not None and not samples and key is not None:
            del self._samples[key]

    def _take(self, samples: dict[int, QueueSample], first: int, last: int) -> list[QueueSample]:
        """Removes samples in a run, iterating over the shorter of the run and the samples."""
        if last - first < len(samples):
            places = [offset for offset in range(first, last + 1) if offset in samples]
        else:
            places = [offset for offset in samples if first <= offset <= last]
        self._count -= len(places)
        return [samples.pop(offset) for offset in places]

    def _forget_old(self, now_ms: int) -> None:
        for key, samples in list(self._samples.items()):
            kept = {
                offset: one
                for offset, one in samples.items()
                if now_ms - one.delivered_ms < SAMPLE_MS_MAX
            }
            self._count -= len(samples) - len(kept)
            if kept:
                self._samples[key] = kept
            else:
                del self._samples[key]
