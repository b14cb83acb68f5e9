"""Scan of a segment from a position on: reads and checks batch after batch.

Recovery stops at the first bad batch; compaction copies the good ones. Reads in large chunks; the
yielded views are valid until the next step.
"""

from collections.abc import Iterator

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
