"""Delayed offsets, ordered by due time: millions of them, in a few bytes each.

Distant offsets are in buckets of `SPAN_MS`, as plain arrays: about twenty bytes an offset. A bucket
whose time is near is spread over buckets of `BUCKET_MS`, and the nearest of those is a heap, which
orders them to the millisecond. So little is moved at a time, however many are due in one hour, and
few buckets are needed, however far the last one is. Cancelling is left to the owner of the
offsets: it ignores due times that no longer apply.

`tag` is a small number stored with an offset (0-15), so that its owner needs no table.
"""

import heapq
from array import array

BUCKET_MS = 1_000
SPAN_MS = 16 * BUCKET_MS
TAG_BITS = 4
TAG_MAX = (1 << TAG_BITS) - 1
_PLACE_BITS = 64 + TAG_BITS
_PLACE_MASK = (1 << _PLACE_BITS) - 1


class Delays:
    __slots__ = ("_buckets", "_count", "_near", "_near_until", "_spans")

    def __init__(self) -> None:
        self._near: list[int] = []  # A heap of what is due before `_near_until`, see `_near_one`.
        self._near_until = 0
        self._buckets = _Buckets(BUCKET_MS)
        self._spans = _Buckets(SPAN_MS)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, due_ms: int, offset: int, tag: int = 0) -> None:
        assert 0 <= tag <= TAG_MAX
        self._count += 1
        place = offset << TAG_BITS | tag
        if due_ms >= self._spans.open_from_ms:
            self._spans.add(due_ms, place)
        else:
            self._place(due_ms, place)

    def add_run(self, first: int, times: "array[int]") -> None:
        """Adds consecutive offsets from `first` on with their due times: `add` for very many."""
        open_from_ms, far = self._spans.open_from_ms, self._spans.add
        for offset, due_ms in enumerate(times, first):
            if due_ms >= open_from_ms:
                far(due_ms, offset << TAG_BITS)
            else:
                self._place(due_ms, offset << TAG_BITS)
        self._count += len(times)

    def next_ms(self) -> int | None:
        """Earliest time at which `due` may return something; never later than that."""
        if self._near:
            return self._near[0] >> _PLACE_BITS
        times = [time for time in (self._buckets.next_ms(), self._spans.next_ms()) if time >= 0]
        return min(times, default=None)

    def first_offset(self) -> int | None:
        """Lowest offset; scans all of them."""
        places = [one & _PLACE_MASK for one in self._near]
        lowest = [min(places, default=-1), self._buckets.first_place(), self._spans.first_place()]
        return min((place >> TAG_BITS for place in lowest if place >= 0), default=None)

    def forget_below(self, offset: int) -> None:
        """Drops offsets that the log no longer has."""
        first = offset << TAG_BITS
        self._near = [one for one in self._near if one & _PLACE_MASK >= first]
        heapq.heapify(self._near)
        kept = self._buckets.forget_below(first) + self._spans.forget_below(first)
        self._count = len(self._near) + kept

    def due(self, now_ms: int) -> list[tuple[int, int]]:
        """Removes and returns what is due at `now_ms`: offsets and tags, earliest first."""
        while (span := self._spans.pop(now_ms)) is not None:
            for at in range(0, len(span), 2):
                self._place(span[at], span[at + 1])
        while (bucket := self._buckets.pop(now_ms)) is not None:
            self._bring_near(bucket)
            self._near_until = max(self._near_until, self._buckets.open_from_ms)
        found = []
        near, limit = self._near, (now_ms + 1) << _PLACE_BITS
        while near and near[0] < limit:
            place = heapq.heappop(near) & _PLACE_MASK
            found.append((place >> TAG_BITS, place & TAG_MAX))
        self._count -= len(found)
        return found

    def _place(self, due_ms: int, place: int) -> None:
        if due_ms >= self._near_until:
            self._buckets.add(due_ms, place)
        else:
            heapq.heappush(self._near, _near_one(due_ms, place))

    def _bring_near(self, bucket: "array[int]") -> None:
        found = map(_near_one, bucket[::2], bucket[1::2])
        if self._near:
            for one in found:
                heapq.heappush(self._near, one)
        else:
            self._near = list(found)
            heapq.heapify(self._near)


def _near_one(due_ms: int, place: int) -> int:
    """Packs due time and place into one int: a third of a tuple's size, and fast to compare."""
    return due_ms << _PLACE_BITS | place


class _Buckets:
    """Pairs of due time and place in arrays, one for each time interval."""

    __slots__ = ("_order", "_table", "_width_ms", "open_from_ms")

    def __init__(self, width_ms: int) -> None:
        self._width_ms = width_ms
        self._table: dict[int, array[int]] = {}
        self._order: list[int] = []  # A heap of the buckets' numbers.
        self.open_from_ms = 0
        """End of the last bucket that was popped: earlier due times belong elsewhere."""

    def add(self, due_ms: int, place: int) -> None:
        number = due_ms // self._width_ms
        bucket = self._table.get(number)
        if bucket is None:
            bucket = self._table[number] = array("q")
            heapq.heappush(self._order, number)
        bucket.append(due_ms)
        bucket.append(place)

    def next_ms(self) -> int:
        """Start of the first bucket; below 0: there is none."""
        return self._order[0] * self._width_ms if self._order else -1

    def first_place(self) -> int:
        """Place with the lowest offset; below 0: there is none."""
        return min((min(bucket[1::2]) for bucket in self._table.values() if bucket), default=-1)

    def forget_below(self, first: int) -> int:
        """Forgets offsets below `first`; returns the number that are left."""
        left = 0
        for number, bucket in self._table.items():
            if bucket and min(bucket[1::2]) < first:
                pairs = zip(bucket[::2], bucket[1::2], strict=True)
                flat = [part for pair in pairs if pair[1] >= first for part in pair]
                bucket = self._table[number] = array("q", flat)
            left += len(bucket) // 2
        return left

    def pop(self, now_ms: int) -> "array[int] | None":
        """Removes and returns the first bucket, if its time has come."""
        if not self._order or self._order[0] * self._width_ms > now_ms:
            return None
        number = heapq.heappop(self._order)
        self.open_from_ms = max(self.open_from_ms, (number + 1) * self._width_ms)
        return self._table.pop(number)
