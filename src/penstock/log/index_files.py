"""Cache files of a segment: `.index`, `.timeindex` and `.txnindex`.

They only save a scan of the batch headers. On any doubt (missing, damaged, wrong length, not
matching each other) `read` returns None and the log file is scanned. Each file records how many
bytes of the log file it covers, so one written while the segment was still growing is valid for
that part. A truncation removes them first.

The aborted transactions of a segment can stay unknown for longer than its index: a scan of headers
finds markers, but only a replay of producer state tells which transactions they ended.

Sparse index: a sorted array of keys and an array of values, searched by bisection. Two uses per
segment: relative offset -> position in the file, and timestamp -> relative offset. In memory it
is two `array`s, so an entry costs 8 or 12 bytes and no object. On disk it is a cache of the log:
a header, then both arrays in their memory layout. The reader must be ready to rebuild it:
`decode` returns None on any doubt (size, order, byte order of another machine).

Never mapped into memory: a full disk would turn a write into SIGBUS.
"""

import struct
import sys
from array import array
from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from penstock.base.ports import Disk
from penstock.log import files as store
from penstock.log.encryption.log_encryption import LogCipher

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


NO_TIMESTAMP = -1
UNKNOWN = -1


class AbortedTxn(NamedTuple):
    """Aborted transaction, which a read_committed consumer must skip (KIP-98)."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Summary(NamedTuple):
    """Facts about a segment that the log needs without loading its indexes."""

    first_timestamp: int
    """Timestamp of the first batch; segment.ms counts from it. NO_TIMESTAMP without a batch."""
    max_timestamp: int
    max_timestamp_offset: int
    """Last offset of the first batch that has `max_timestamp`."""
    aborted_count: int
    """UNKNOWN while the caches are lost and not yet rebuilt."""


EMPTY = Summary(NO_TIMESTAMP, NO_TIMESTAMP, -1, 0)


@dataclass(frozen=True, slots=True)
class Cached:
    """Content of the cache files of a segment."""

    summary: Summary
    unindexed_bytes: int
    """Bytes since the last entry of the index."""
    covered_bytes: int
    next_offset: int
    """Offset after the covered part."""
    index: Index
    times: Index
    aborted: list[AbortedTxn] | None
    """None while unknown."""


_INDEX_FILE = tuple[Summary, int, int, bytes]
_TXN_INDEX_FILE = tuple[int, list[AbortedTxn]]


def encode(path: str, cached: Cached) -> list[tuple[str, bytes]]:
    """Paths and bodies for `store.write_cache`. `path` is that of the segment, without suffix."""
    covered = cached.covered_bytes
    body = (
        cached.summary,
        cached.unindexed_bytes,
        cached.next_offset,
        cached.index.encode(covered),
    )
    files = [
        (path + store.TIME_INDEX, cached.times.encode(covered)),
        (path + store.INDEX, msgspec.msgpack.encode(body)),
    ]
    if cached.aborted:
        txns = msgspec.msgpack.encode((covered, cached.aborted))
        files.insert(0, (path + store.TXN_INDEX, txns))
    return files


def read(disk: Disk, path: str, log_bytes: int, cipher: LogCipher) -> Cached | None:
    """Reads the cache files for a log file of `log_bytes`; None on any doubt."""
    body = store.read_cache(disk, path + store.INDEX, cipher)
    times_body = store.read_cache(disk, path + store.TIME_INDEX, cipher)
    if body is None or times_body is None:
        return None
    try:
        summary, unindexed, next_offset, index_body = msgspec.msgpack.decode(body, type=_INDEX_FILE)
    except msgspec.MsgspecError:
        return None
    index = decode(index_body, OFFSET_KINDS)
    times = decode(times_body, TIME_KINDS)
    if index is None or times is None or not 0 <= index[1] == times[1] <= log_bytes:
        return None
    aborted = _read_aborted(disk, path, summary.aborted_count, index[1], cipher)
    return Cached(summary, unindexed, index[1], next_offset, index[0], times[0], aborted)


def _read_aborted(
    disk: Disk, path: str, count: int, covered_bytes: int, cipher: LogCipher
) -> list[AbortedTxn] | None:
    if count <= 0:
        return [] if count == 0 else None
    body = store.read_cache(disk, path + store.TXN_INDEX, cipher)
    if body is None:
        return None
    try:
        covered, aborted = msgspec.msgpack.decode(body, type=_TXN_INDEX_FILE)
    except msgspec.MsgspecError:
        return None
    return aborted if covered == covered_bytes and len(aborted) == count else None


def remove(disk: Disk, path: str) -> None:
    for suffix in store.CACHES:
        store.remove(disk, path + suffix)
