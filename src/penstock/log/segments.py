"""Segments of a log in offset order, with lookup by offset.

Never empty; the last one is `active`. `sealed_bytes` is cached, so the size of a log costs nothing.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from penstock.log.segment import Segment


class Segments:
    __slots__ = ("_bases", "_list", "active", "sealed_bytes")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._list: list[Segment] = []
        self._bases: list[int] = []
        self._set(segments)

    def _set(self, segments: Sequence[Segment]) -> None:
        assert segments, "a log has at least its active segment"
        self._list = list(segments)
        self._bases = [segment.base_offset for segment in segments]
        assert self._bases == sorted(set(self._bases)), "two segments start at one offset"
        self.active = self._list[-1]
        self.sealed_bytes = sum(segment.size for segment in self._list[:-1])

    def __len__(self) -> int:
        return len(self._list)

    def __iter__(self) -> Iterator[Segment]:
        """Iterates over a copy: segments may be added or removed meanwhile."""
        return iter(self._list.copy())

    def __getitem__(self, at: int) -> Segment:
        return self._list[at]

    @property
    def size_bytes(self) -> int:
        return self.sealed_bytes + self.active.size

    @property
    def sealed(self) -> list[Segment]:
        return self._list[:-1]

    def floor(self, offset: int) -> Segment:
        """Last segment that starts at or before `offset`; the first one if none does."""
        return self._list[max(bisect_right(self._bases, offset) - 1, 0)]

    def since(self, offset: int) -> list[Segment]:
        """Segment that holds `offset`, and all segments after it."""
        return self._list[max(bisect_right(self._bases, offset) - 1, 0) :]

    def end_of(self, segment: Segment, end_offset: int) -> int:
        """End offset of `segment`, in a log that ends at `end_offset`."""
        at = bisect_right(self._bases, segment.base_offset)
        return self._bases[at] if at < len(self._bases) else end_offset

    def add(self, segment: Segment) -> None:
        self.sealed_bytes += self.active.size
        self._list.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def replace(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Replaces `old`, which are neighbours, by `new`; an empty `new` removes them."""
        kept = [segment for segment in self._list if segment not in old]
        self._set(sorted([*kept, *new], key=lambda segment: segment.base_offset))
