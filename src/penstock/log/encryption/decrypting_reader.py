"""Decrypting reads of encrypted segments: batches are decrypted before they are sent.

`SealedSlice` decrypts a few batches at a time, so that the client can process them meanwhile.
`decrypt_chunk` decrypts a whole byte range ahead of the client's fetch (read-ahead in the broker).
"""

from typing import NamedTuple

from penstock.base.errors import Corrupt
from penstock.base.ports import Buffer
from penstock.log.encryption.log_encryption import opened_bytes
from penstock.log.segment import Segment


class SealedSlice:
    """Encrypted bytes of a segment, decrypted while they are sent. See `ports.Slice`.

    If a batch cannot be decrypted, the announced bytes do not exist: raises EOFError, and the
    connection must be closed. The next fetch goes through a worker, which reports the reason.
    """

    __slots__ = ("_at", "_data", "_position", "_segment", "_size", "end")

    def __init__(self, segment: Segment, position: int, data: bytes) -> None:
        self._segment = segment
        self._position = position
        self._data = memoryview(data)
        self._at = 0
        whole, self._size = opened_bytes(data)
        self.end = position + whole
        """Position in the file at which the sent part ends."""

    def __len__(self) -> int:
        return self._size

    def send_to(self, descriptor: int) -> bool:
        return False

    def take(self, size: int) -> Buffer:
        """Decrypts whole batches, at least `size` bytes if that many remain."""
        start, segment = self._at, self._segment
        end, opened = opened_bytes(self._data, start, size)
        buffer = segment.cipher.new_buffer(opened)
        try:
            done = segment.cipher.open_into(self._data[start:end], buffer)
        except Corrupt as damage:
            segment.is_doubted = True
            place = f"{segment.path}: at position {self._position + start} or after"
            raise EOFError(f"{place}: {damage}") from None
        assert done == opened
        self._at = end
        self._size -= opened
        return buffer


class Opened(NamedTuple):
    """Decrypted whole batches, as they were appended, and the position in the file of their end."""

    content: memoryview
    end: int
    generation: int


def decrypt_chunk(segment: Segment, position: int, size: int) -> Opened | None:
    """Decrypts the whole batches among `size` bytes; None where the page cache holds none.

    Runs on the loop's thread; does not wait. Raises Corrupt and OSError.
    """
    generation = segment.generation
    data = segment.file.read_cached(position, size)
    if data is None:
        return None
    whole, opened = opened_bytes(data)
    if not whole:
        return None
    buffer = segment.cipher.new_buffer(opened)
    done = segment.cipher.open_into(memoryview(data)[:whole], buffer)
    assert done == opened
    return Opened(buffer, position + whole, generation)
