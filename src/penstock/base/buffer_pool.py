"""Memory that is used again: rooms for what is opened, sent and forgotten.

To make a megabyte costs as much as to fill it. A room is free as soon as nobody refers to it any
more, so nobody has to give one back. Asked for by one thread, the loop's; anybody may hold one.
"""

import sys

ROOM_BYTES = (1 << 20) + (1 << 17)
"""What a consumer asks for of one partition by default, and a little more."""
ROOMS_MAX = 16
_UNHELD = 3
"""References to a room that is free: the list's, the loop variable's, the question's own."""


class BufferPool:
    """At most `ROOMS_MAX` are kept. Beyond that, and above `ROOM_BYTES`, there is new memory."""

    __slots__ = ("_rooms",)

    def __init__(self) -> None:
        self._rooms: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """Room for `size` bytes, with whatever is in it, until its last view is gone."""
        if size > ROOM_BYTES:
            return memoryview(bytearray(size))
        for room in self._rooms:
            if sys.getrefcount(room) == _UNHELD:
                return memoryview(room)[:size]
        if len(self._rooms) >= ROOMS_MAX:
            return memoryview(bytearray(size))
        self._rooms.append(bytearray(ROOM_BYTES))
        return memoryview(self._rooms[-1])[:size]
