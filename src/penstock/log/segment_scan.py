"""Scan of a segment from a position on: reads and checks batch after batch.

Recovery stops at the first bad batch; compaction copies the good ones. Reads in large chunks; the
yielded views are valid until the next step.

Segments of a log in offset order, with lookup by offset. Never empty; the last one is `active`.
`sealed_bytes` is cached, so the size of a log costs nothing.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from penstock.base.errors import Corrupt, Refused
from penstock.log.expected_batches import ExpectedBatches
from penstock.log.segment import Segment
from penstock.wire.records import (
    BATCH_OVERHEAD,
    ENCRYPTED,
    LENGTH_OVERHEAD,
    BatchHeader,
    check_stored,
    read_header,
)


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


SCAN_BYTES = 1024 * 1024


def scan(
    segment: Segment, position: int, offset: int, epoch: int, expected: ExpectedBatches | None
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yields the valid batches from `position` on; ends before the first invalid one.

    A batch is valid if its length fits the file, its magic and CRC are right, neither its offset
    nor its leader epoch is below the one before (`offset` and `epoch` for the first batch), and
    `expected` admits it.
    """
    chunk = memoryview(b"")
    start = position  # Position of the chunk.
    while position < segment.size:
        size = _size_at(chunk, position - start)
        if size == 0:
            chunk, start = _read(segment, position), position
            size = _size_at(chunk, 0)
            if size == 0:
                return
        view = chunk[position - start : position - start + size]
        try:
            header = check_stored(view)
        except Refused:
            return
        if header.base_offset < offset or header.leader_epoch < epoch:
            return
        if expected is not None and not expected.admits(header, offset):
            return
        yield header, view
        offset, epoch = header.next_offset, header.leader_epoch
        position += size


def scan_all(segment: Segment) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yields every batch of a segment, decrypted; raises Corrupt when one is not intact."""
    position = 0
    expected = segment.expected if segment.unverified_end == segment.size else None
    for header, view in scan(segment, 0, segment.base_offset, -1, expected):
        if header.attributes & ENCRYPTED:
            opened = memoryview(segment.reveal(bytes(view), position))
            yield read_header(opened), opened
        else:
            yield header, view
        position += len(view)
    if position != segment.size:
        raise Corrupt(f"{segment.path}: no valid batch at position {position}")


def _size_at(chunk: memoryview, at: int) -> int:
    """Size of the batch at `at`; 0 when the chunk does not hold all of it, or it is impossible."""
    if at + BATCH_OVERHEAD > len(chunk):
        return 0
    size = LENGTH_OVERHEAD + read_header(chunk, at).length
    return size if BATCH_OVERHEAD <= size <= len(chunk) - at else 0


def _read(segment: Segment, position: int) -> memoryview:
    """Reads a chunk that holds the whole batch at `position`, if the file does."""
    chunk = memoryview(segment.file.read(position, min(SCAN_BYTES, segment.size - position)))
    if len(chunk) >= BATCH_OVERHEAD:
        size = LENGTH_OVERHEAD + read_header(chunk).length
        if len(chunk) < size <= segment.size - position:
            return memoryview(segment.file.read(position, size))
    return chunk
