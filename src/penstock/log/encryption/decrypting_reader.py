"""Encrypted stretches of a segment on their way out: what is sent is opened, never as it lies.

`SealedSlice` is opened some batches at a time, so that the reader has something to do meanwhile.
`open_stretch` opens a whole one, for a reader who has not asked for it yet (`api/read_ahead`).
"""

from typing import NamedTuple

from penstock.base.errors import Corrupt
from penstock.base.ports import Buffer
from penstock.log.encryption.log_encryption import opened_bytes
from penstock.log.segment import Segment


class SealedSlice:
    """See `ports.Slice`.

    If a batch cannot be opened, the promised bytes do not exist: EOFError, and the connection they
    were promised to must end. Whoever asks again is told why by a worker.
    """

    __slots__ = ("_at", "_data", "_position", "_segment", "_size", "end")

    def __init__(self, segment: Segment, position: int, data: bytes) -> None:
        self._segment = segment
        self._position = position
        self._data = memoryview(data)
        self._at = 0
        whole, self._size = opened_bytes(data)
        self.end = position + whole
        """Where what is sent of it ends in the file."""

    def __len__(self) -> int:
        return self._size

    def send_to(self, descriptor: int) -> bool:
        return False

    def take(self, size: int) -> Buffer:
        """Whole batches, at least `size` bytes if there are so many."""
        start, segment = self._at, self._segment
        end, opened = opened_bytes(self._data, start, size)
        room = segment.vault.room(opened)
        try:
            done = segment.vault.open_into(self._data[start:end], room)
        except Corrupt as damage:
            segment.is_doubted = True
            place = f"{segment.path}: at {self._position + start} or after"
            raise EOFError(f"{place}: {damage}") from None
        assert done == opened
        self._at = end
        self._size -= opened
        return room


class Opened(NamedTuple):
    """Whole batches as they were appended, and where they end in the file."""

    content: memoryview
    end: int
    generation: int


def open_stretch(segment: Segment, position: int, size: int) -> Opened | None:
    """Opens the whole batches among `size` bytes; None where there are none in the page cache.

    On the loop's thread; does not wait. Raises Corrupt and OSError.
    """
    generation = segment.generation
    data = segment.file.read_cached(position, size)
    if data is None:
        return None
    whole, opened = opened_bytes(data)
    if not whole:
        return None
    room = segment.vault.room(opened)
    done = segment.vault.open_into(memoryview(data)[:whole], room)
    assert done == opened
    return Opened(room, position + whole, generation)
