"""Sparse index: a sorted array of keys and an array of values, searched by bisection.

Two uses per segment: relative offset -> position in the file, and timestamp -> relative offset.
In memory it is two `array`s, so an entry costs 8 or 12 bytes and no object. On disk it is a cache
of the log: a header, then both arrays in their memory layout. The reader must be ready to rebuild
it: `decode` returns None on any doubt (size, order, byte order of another machine).

Never mapped into memory: a full disk would turn a write into SIGBUS.
"""

import struct
import sys
from array import array
from bisect import bisect_right

OFFSET_KINDS = ("I", "I")
TIME_KINDS = ("q", "I")

_HEADER = struct.Struct("<4sIQ")  # kinds and byte order, entries, bytes of log covered
_BYTE_ORDER = b"<" if sys.byteorder == "little" else b">"


class Index:
    """Strictly rising keys with values; `floor` finds the value of the last key at or below one."""

    __slots__ = ("keys", "values")

    def __init__(self, kinds: tuple[str, str]) -> None:
        self.keys: array[int] = array(kinds[0])
        self.values: array[int] = array(kinds[1])

    def __len__(self) -> int:
        return len(self.keys)

    def append(self, key: int, value: int) -> None:
        self.values.append(value)  # First: a reader in another thread goes by the keys.
        self.keys.append(key)

    def floor(self, key: int) -> int:
        """Value of the last entry at or below `key`; 0, the segment's start, without one."""
        return self.entry(key)[1]

    def entry(self, key: int) -> tuple[int, int]:
        """Last entry at or below `key`; zeros without one."""
        at = bisect_right(self.keys, key)
        return (self.keys[at - 1], self.values[at - 1]) if at else (0, 0)

    def truncate_values(self, value: int) -> None:
        """Drops the entries whose value is at or above `value`."""
        values = self.values
        count = len(values)
        while count and values[count - 1] >= value:
            count -= 1
        del self.keys[count:]
        del self.values[count:]

    @property
    def size_bytes(self) -> int:
        return len(self.keys) * (self.keys.itemsize + self.values.itemsize)

    def encode(self, covered_bytes: int) -> bytes:
        kinds = f"{self.keys.typecode}{self.values.typecode}".encode()
        header = _HEADER.pack(_BYTE_ORDER + kinds, len(self.keys), covered_bytes)
        return header + self.keys.tobytes() + self.values.tobytes()


def decode(body: bytes, kinds: tuple[str, str]) -> tuple[Index, int] | None:
    """Decodes an index and the number of log bytes it covers; None on any inconsistency."""
    if len(body) < _HEADER.size:
        return None
    tag, count, covered_bytes = _HEADER.unpack_from(body)
    index = Index(kinds)
    width = index.keys.itemsize
    if tag.rstrip(b"\0") != _BYTE_ORDER + "".join(kinds).encode():
        return None
    if len(body) != _HEADER.size + count * (width + index.values.itemsize):
        return None
    middle = _HEADER.size + count * width
    index.keys.frombytes(body[_HEADER.size : middle])
    index.values.frombytes(body[middle:])
    keys = index.keys
    if any(keys[at] >= keys[at + 1] for at in range(count - 1)):
        return None
    return index, covered_bytes
