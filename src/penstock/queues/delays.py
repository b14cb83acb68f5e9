"""Offsets that wait for their time, millions of them, in a few bytes each.

Far ahead they lie in buckets, one for each span of `BUCKET_MS`, as plain arrays: about twenty bytes
an offset. A bucket whose time is near becomes a heap, which gives them out in order to the
millisecond. Cancelling is for whoever owns the offsets: they are told of a due time that no longer
means anything, and ignore it.

`tag` is a small number that travels with an offset (0-15), so that its owner needs no table.
"""

import heapq
from array import array

BUCKET_MS = 1_000
TAG_BITS = 4
TAG_MAX = (1 << TAG_BITS) - 1


class Delays:
    __slots__ = ("_buckets", "_count", "_near", "_near_until", "_order")

    def __init__(self) -> None:
        self._near: list[tuple[int, int]] = []  # A heap of what is due before `_near_until`.
        self._near_until = 0
        self._buckets: dict[int, array[int]] = {}  # Pairs of due time and tagged offset.
        self._order: list[int] = []  # A heap of the buckets' numbers.
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, due_ms: int, offset: int, tag: int = 0) -> None:
        assert 0 <= tag <= TAG_MAX
        self._count += 1
        packed = offset << TAG_BITS | tag
        if due_ms < self._near_until:
            heapq.heappush(self._near, (due_ms, packed))
            return
        number = due_ms // BUCKET_MS
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = array("q")
            heapq.heappush(self._order, number)
        bucket.append(due_ms)
        bucket.append(packed)

    def next_ms(self) -> int | None:
        """When `due` may next have something; never later than that."""
        if self._near:
            return self._near[0][0]
        if self._order:
            return self._order[0] * BUCKET_MS
        return None

    def due(self, now_ms: int) -> list[tuple[int, int]]:
        """Takes out what is due at `now_ms`: offsets and tags, earliest first."""
        while self._order and self._order[0] * BUCKET_MS <= now_ms:
            number = heapq.heappop(self._order)
            bucket = self._buckets.pop(number)
            pairs = zip(bucket[::2], bucket[1::2], strict=True)
            if self._near:
                for pair in pairs:
                    heapq.heappush(self._near, pair)
            else:
                self._near = list(pairs)
                heapq.heapify(self._near)
            self._near_until = max(self._near_until, (number + 1) * BUCKET_MS)
        found = []
        near = self._near
        while near and near[0][0] <= now_ms:
            packed = heapq.heappop(near)[1]
            found.append((packed >> TAG_BITS, packed & TAG_MAX))
        self._count -= len(found)
        return found
