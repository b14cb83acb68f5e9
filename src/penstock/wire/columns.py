"""Decoded record batch: its header, single records, and all records as columns.

`Columns` keeps the uncompressed payload and flat arrays of positions into it, so a batch of a
thousand records costs nine objects until a record is read. `rows.Collector` copies from the
same arrays. `penstock.wire.records.decode` fills them.
"""

import enum
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Final, NamedTuple

from penstock.wire import _records_py

try:
    from penstock.wire._records import decode_headers, header_numbers, slices
except ImportError:
    from penstock.wire._records_py import decode_headers, header_numbers, slices


DIGITS_MAX: Final = _records_py.DIGITS_MAX
# The length field counts what follows it: base offset and the length itself come before.
LENGTH_OVERHEAD: Final = 12


class BatchHeader(NamedTuple):
    """Header of 61 bytes before the records, with Kafka's names."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # Kafka's word hides the tuple's method

    @property
    def size_bytes(self) -> int:
        return self.length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1


class Record(NamedTuple):
    """One message. The log assigns offsets; a record to be written keeps the default."""

    offset: int = 0
    timestamp: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Column(enum.IntFlag):
    """Columns for `decode` to keep; all are checked in any case."""

    OFFSETS = _records_py.OFFSETS
    TIMESTAMPS = _records_py.TIMESTAMPS
    KEYS = _records_py.KEYS
    VALUES = _records_py.VALUES
    HEADERS = _records_py.HEADERS


ALL: Final = Column.OFFSETS | Column.TIMESTAMPS | Column.KEYS | Column.VALUES | Column.HEADERS


@dataclass(slots=True, frozen=True)
class Columns:
    """Records of one batch: a flat int64 array per column over one uncompressed payload.

    Keys and values are spans [start, end) of `payload`; start and end are -1 for null. The
    headers of a record are `header_counts[i]` of them from `header_starts[i]` on. A column that
    was not selected is an empty array.
    """

    header: BatchHeader
    payload: memoryview
    offsets: "array[int]"
    timestamps: "array[int]"
    key_starts: "array[int]"
    key_ends: "array[int]"
    value_starts: "array[int]"
    value_ends: "array[int]"
    header_starts: "array[int]"
    header_counts: "array[int]"

    def __len__(self) -> int:
        return self.header.count

    def __iter__(self) -> Iterator[Record]:
        count = self.header.count
        return map(
            Record,
            self.offsets or repeat(0, count),
            self.timestamps or repeat(-1, count),
            self.keys() or repeat(None, count),
            self.values() or repeat(None, count),
            map(self.headers, range(count)) if self.header_starts else repeat((), count),
        )

    @property
    def has_null_key(self) -> bool:
        """True if a record has no key, which a compacted topic refuses."""
        return -1 in self.key_starts

    def keys(self) -> list[bytes | None]:
        """All keys, copied out of the payload."""
        keys: list[bytes | None] = slices(self.payload, self.key_starts, self.key_ends)
        return keys

    def values(self) -> list[bytes | None]:
        """All values, copied out of the payload."""
        values: list[bytes | None] = slices(self.payload, self.value_starts, self.value_ends)
        return values

    def key(self, index: int) -> bytes | None:
        start = self.key_starts[index]
        return None if start < 0 else bytes(self.payload[start : self.key_ends[index]])

    def value(self, index: int) -> bytes | None:
        start = self.value_starts[index]
        return None if start < 0 else bytes(self.payload[start : self.value_ends[index]])

    def headers(self, index: int) -> tuple[tuple[str, bytes | None], ...]:
        count = self.header_counts[index]
        if not count:
            return ()
        headers: tuple[tuple[str, bytes | None], ...]
        headers = decode_headers(self.payload, self.header_starts[index], count)
        return headers

    def header_numbers(
        self, prefix: bytes, names: tuple[bytes, ...]
    ) -> "tuple[array[int], ...] | None":
        """Decimal numbers in the headers of these names, as columns, -1 without a header.

        None if another header begins with `prefix`, one of these occurs twice, or its value is not
        a number of at most `DIGITS_MAX` digits.
        """
        numbers: tuple[array[int], ...] | None
        numbers = header_numbers(
            self.payload, self.header_starts, self.header_counts, prefix, names
        )
        return numbers

    def record(self, index: int) -> Record:
        """One record; columns that were not selected hold Record's defaults."""
        return Record(
            self.offsets[index] if self.offsets else 0,
            self.timestamps[index] if self.timestamps else -1,
            self.key(index) if self.key_starts else None,
            self.value(index) if self.value_starts else None,
            self.headers(index) if self.header_starts else (),
        )
