"""Pool of reusable 1.1 MiB buffers for decrypted data.

Allocating a megabyte costs as much as filling it. A buffer is free as soon as no reference to it
remains, so it need not be returned. Only the loop's thread takes buffers; any thread may hold one.
"""

import sys

BUFFER_BYTES = (1 << 20) + (1 << 17)
"""Buffer size: a consumer's default fetch size per partition, and a little more."""
BUFFERS_MAX = 16
_UNHELD = 3
"""Reference count of a free buffer: the list, the loop variable, the argument of the check."""


class BufferPool:
    """Keeps at most `BUFFERS_MAX` buffers. Beyond that, and above `BUFFER_BYTES`, it allocates."""

    __slots__ = ("_buffers",)

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """Returns a buffer of `size` bytes with arbitrary content; in use until its last view."""
        if size > BUFFER_BYTES:
            return memoryview(bytearray(size))
        for buffer in self._buffers:
            if sys.getrefcount(buffer) == _UNHELD:
                return memoryview(buffer)[:size]
        if len(self._buffers) >= BUFFERS_MAX:
            return memoryview(bytearray(size))
        self._buffers.append(bytearray(BUFFER_BYTES))
        return memoryview(self._buffers[-1])[:size]
