"""Append times of records, kept apart from their timestamps: sparse bounds (ADR 35).

An entry says that nothing from its offset on was there before its time. Replicas keep them in
memory, by the loop's time; queues persist some of them, by their leader's clock. For a replica an
entry is an upper bound as well: everything below its offset was there at its time.

Bounds: one entry in `STEP_MS`; beyond `ENTRIES_MAX` every second one of the older half is dropped.
A dropped entry makes a lower bound earlier and an upper bound later, never the other way round.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

STEP_MS = 1_000
ENTRIES_MAX = 64


class AppendTimes:
    __slots__ = ("_offsets", "_times")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._offsets = array("q")
        self._times = array("q")
        for offset, time_ms in entries:
            self._offsets.append(offset)
            self._times.append(time_ms)

    def entries(self) -> tuple[tuple[int, int], ...]:
        return tuple(zip(self._offsets, self._times, strict=True))

    def is_news(self, offset: int, time_ms: int) -> bool:
        """True if `note` would add an entry. Clocks may go back: that is news as well."""
        if not self._offsets:
            return True
        last_ms = self._times[-1]
        return offset > self._offsets[-1] and not last_ms <= time_ms < last_ms + STEP_MS

    def note(self, offset: int, time_ms: int) -> None:
        """Adds an entry, unless the last one is less than a step older."""
        if not self.is_news(offset, time_ms):
            return
        if len(self._offsets) >= ENTRIES_MAX:
            del self._offsets[1 : ENTRIES_MAX // 2 : 2]
            del self._times[1 : ENTRIES_MAX // 2 : 2]
        self._offsets.append(offset)
        self._times.append(time_ms)

    def since(self, offset: int) -> int | None:
        """Time before which the record at `offset` was not appended; None: unknown."""
        at = bisect_right(self._offsets, offset)
        return self._times[at - 1] if at else None

    def until(self, offset: int) -> int | None:
        """Time at which the record at `offset` had been appended; None: unknown."""
        at = bisect_right(self._offsets, offset)
        return self._times[at] if at < len(self._times) else None

    def forget_from(self, offset: int) -> None:
        """Drops the entries of records that were truncated."""
        at = bisect_left(self._offsets, offset)
        del self._offsets[at:]
        del self._times[at:]

    def forget_below(self, offset: int) -> None:
        """Drops entries that say nothing about the records from `offset` on."""
        at = bisect_right(self._offsets, offset) - 1
        if at > 0:
            del self._offsets[:at]
            del self._times[:at]

    def clear(self) -> None:
        del self._offsets[:]
        del self._times[:]
