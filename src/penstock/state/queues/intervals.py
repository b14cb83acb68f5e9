"""Set of offsets as disjoint runs: ten million neighbours cost as much as one, 16 bytes.

Invariants: runs are sorted, do not overlap, and do not touch (neighbours are merged); `len` counts
offsets, `runs` counts runs. Lookups bisect; adding and removing move the tail of two arrays, which
stays cheap as long as the owner bounds the number of runs.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

OffsetRun = tuple[int, int]
"""First and last offset, both included."""


class IntervalSet:
    __slots__ = ("_count", "_firsts", "_lasts")

    def __init__(self) -> None:
        self._firsts: array[int] = array("q")
        self._lasts: array[int] = array("q")
        self._count = 0

    @classmethod
    def unpacked(cls, data: bytes) -> "IntervalSet":
        """Inverse of `packed`; unpacks millions of runs in a few milliseconds."""
        numbers = array("q", data)
        made = cls()
        made._firsts, made._lasts = numbers[::2], numbers[1::2]
        made._count = sum(made._lasts) - sum(made._firsts) + len(made._firsts)
        return made

    def packed(self) -> bytes:
        numbers = array("q", bytes(16 * len(self._firsts)))
        numbers[::2], numbers[1::2] = self._firsts, self._lasts
        return numbers.tobytes()

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IntervalSet):
            return NotImplemented
        return self._firsts == other._firsts and self._lasts == other._lasts

    def __iter__(self) -> Iterator[OffsetRun]:
        return iter(list(zip(self._firsts, self._lasts, strict=True)))

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._firsts, offset) - 1
        return at >= 0 and offset <= self._lasts[at]

    @property
    def runs(self) -> int:
        return len(self._firsts)

    @property
    def first(self) -> int:
        """Lowest offset; the set must not be empty."""
        return self._firsts[0]

    @property
    def last(self) -> int:
        return self._lasts[-1]

    def run_at(self, offset: int) -> OffsetRun | None:
        """Run that contains `offset`."""
        at = bisect_right(self._firsts, offset) - 1
        if at < 0 or offset > self._lasts[at]:
            return None
        return self._firsts[at], self._lasts[at]

    def add(self, first: int, last: int) -> None:
        """Adds a run; it may overlap existing ones."""
        assert first <= last
        firsts, lasts = self._firsts, self._lasts
        if not lasts or first > lasts[-1] + 1:
            firsts.append(first)
            lasts.append(last)
            self._count += last - first + 1
            return
        # Everything from `low` up to `high` touches or overlaps the new run and becomes one.
        low = bisect_left(lasts, first - 1)
        high = bisect_right(firsts, last + 1)
        gone = 0
        if low < high:
            gone = sum(lasts[at] - firsts[at] + 1 for at in range(low, high))
            first = min(first, firsts[low])
            last = max(last, lasts[high - 1])
        if high == low:
            firsts.insert(low, first)
            lasts.insert(low, last)
        else:
            firsts[low] = first
            lasts[low] = last
            del firsts[low + 1 : high], lasts[low + 1 : high]
        self._count += last - first + 1 - gone

    def remove(self, first: int, last: int) -> int:
        """Removes a run; returns the number of offsets that were in the set."""
        assert first <= last
        firsts, lasts = self._firsts, self._lasts
        low = bisect_left(lasts, first)
        high = bisect_right(firsts, last)
        if low >= high:
            return 0
        gone = 0
        kept_firsts: array[int] = array("q")
        kept_lasts: array[int] = array("q")
        for at in range(low, high):
            start, end = firsts[at], lasts[at]
            gone += min(end, last) - max(start, first) + 1
            if start < first:
                kept_firsts.append(start)
                kept_lasts.append(first - 1)
            if end > last:
                kept_firsts.append(last + 1)
                kept_lasts.append(end)
        firsts[low:high] = kept_firsts
        lasts[low:high] = kept_lasts
        self._count -= gone
        return gone

    def take(self, count: int) -> OffsetRun | None:
        """Removes and returns the lowest run, at most `count` offsets of it."""
        if not self._firsts or count <= 0:
            return None
        first, last = self._firsts[0], self._lasts[0]
        if last - first + 1 > count:
            last = first + count - 1
            self._firsts[0] = last + 1
        else:
            del self._firsts[0], self._lasts[0]
        self._count -= last - first + 1
        return first, last

    def missing(self, first: int, last: int) -> Iterator[OffsetRun]:
        """Parts of a run that are not in the set, lowest first."""
        at = bisect_left(self._lasts, first)
        while first <= last:
            if at >= len(self._firsts) or self._firsts[at] > last:
                yield first, last
                return
            if self._firsts[at] > first:
                yield first, self._firsts[at] - 1
            first = self._lasts[at] + 1
            at += 1

    def within(self, first: int, last: int) -> Iterator[OffsetRun]:
        """Parts of a run that are in the set, lowest first."""
        at = bisect_left(self._lasts, first)
        while at < len(self._firsts) and self._firsts[at] <= last:
            yield max(first, self._firsts[at]), min(last, self._lasts[at])
            at += 1
