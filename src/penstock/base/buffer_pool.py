"""Pool of reusable 1.1 MiB buffers for decrypted data.

Allocating a megabyte costs as much as filling it. A buffer is free as soon as no reference to it
remains, so it need not be returned. Only the loop's thread takes buffers; any thread may hold one.
"""

import sys

ROOM_BYTES = (1 << 20) + (1 << 17)
"""Buffer size: a consumer's default fetch size per partition, and a little more."""
ROOMS_MAX = 16
_UNHELD = 3
"""Reference count of a free buffer: the list, the loop variable, the argument of the check."""


class BufferPool:
    """Keeps at most `ROOMS_MAX` buffers. Beyond that, and above `ROOM_BYTES`, it allocates."""

    __slots__ = ("_rooms",)

    def __init__(self) -> None:
        self._rooms: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """Returns a buffer of `size` bytes with arbitrary content; in use until its last view."""
        if size > ROOM_BYTES:
            return memoryview(bytearray(size))
        for room in self._rooms:
            if sys.getrefcount(room) == _UNHELD:
                return memoryview(room)[:size]
        if len(self._rooms) >= ROOMS_MAX:
            return memoryview(bytearray(size))
        self._rooms.append(bytearray(ROOM_BYTES))
        return memoryview(self._rooms[-1])[:size]
