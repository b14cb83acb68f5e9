"""Conversion between records and Arrow columns in pure Python: the twin of `_rows.pyx`.

Both modules have the same functions, results and errors; tests/property/test_rows_twins.py verifies
that. This one is the reference, and the fallback when it was installed without a C compiler.

A column is Arrow's binary layout: validity bits (None: no nulls), 32-bit offsets, data, and the
index of the first row in them. Invariant: nothing outside these buffers is read.
"""

from array import array
from collections.abc import Sequence
from typing import Final

from penstock.base.ports import Buffer
from penstock.wire._records_py import BAD_RECORD_LENGTH, BAD_SPAN, INT32_MAX, slices
from penstock.wire._records_py import encode as encode_records

Column = tuple[Buffer | None, Buffer, Buffer, int]

_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFFFFFF


def key_partitions(column: Column, count: int, partition_count: int) -> "array[int]":
    """Partition of each key by the hash of Kafka's clients; -1 without a key."""
    if partition_count <= 0:
        raise ValueError("a topic has at least one partition")
    keys = _values(column, range(count))
    return array(
        "i",
        [-1 if key is None else (murmur2(key) & 0x7FFFFFFF) % partition_count for key in keys],
    )


def group_rows(partitions: "array[int]", partition_count: int) -> tuple["array[int]", "array[int]"]:
    """Rows ordered by partition, and the start of each partition (and one more for the end)."""
    rows: list[list[int]] = [[] for _ in range(partition_count)]
    for row, partition in enumerate(partitions):
        if not 0 <= partition < partition_count:
            raise ValueError(f"row {row}: there is no partition {partition}")
        rows[partition].append(row)
    starts = array("i", [0])
    for group in rows:
        starts.append(starts[-1] + len(group))
    return array("i", [row for group in rows for row in group]), starts


def encode_rows(
    rows: "array[int]",
    first: int,
    last: int,
    keys: Column | None,
    values: Column,
    timestamps: "array[int] | None",
    timestamp: int,
    reserve: int,
    bytes_max: int,
) -> tuple[bytearray, int]:
    """Encodes rows[first:last] as records, after `reserve` zero bytes; returns the row after the
    last one.

    Stops early, after at least one record, when the next one would exceed `bytes_max`. Timestamps
    are relative to that of the first row.
    """
    if not 0 <= first < last <= len(rows):
        raise ValueError("no such rows")
    wanted = rows[first:last]
    found_values = _values(values, wanted)
    found_keys = [None] * len(wanted) if keys is None else _values(keys, wanted)
    if timestamps is not None and any(not 0 <= row < len(timestamps) for row in wanted):
        raise ValueError(BAD_SPAN)
    times = [timestamp if timestamps is None else timestamps[row] for row in wanted]
    batch = bytearray(reserve)
    for index, row in enumerate(wanted):
        del row
        record = (index, times[index], found_keys[index], found_values[index], ())
        one = encode_records([record], 0, 0, times[0], True)
        if index and len(batch) + len(one) > bytes_max:
            return batch, first + index
        if len(batch) + len(one) > INT32_MAX:
            raise ValueError(BAD_RECORD_LENGTH)
        batch += one
    return batch, last


def _values(column: Column, rows: Sequence[int]) -> list[bytes | None]:
    validity, offsets, data, skipped = column
    bits = None if validity is None else memoryview(validity).cast("B")
    places = memoryview(offsets).cast("B").cast("i")
    content = memoryview(data).cast("B")
    found: list[bytes | None] = []
    for row in rows:
        at = row + skipped
        if row < 0 or at + 1 >= len(places) or (bits is not None and at >> 3 >= len(bits)):
            raise ValueError(BAD_SPAN)
        if bits is not None and not bits[at >> 3] >> (at & 7) & 1:
            found.append(None)
            continue
        start, end = places[at], places[at + 1]
        if not 0 <= start <= end <= len(content):
            raise ValueError(BAD_SPAN)
        found.append(bytes(content[start:end]))
    return found


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2, as an unsigned number."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    tail = data[whole:]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


class Collector:
    """Joins the records of many batches into Arrow's buffers; an unselected column stays empty.

    `finish` returns the number of rows, offsets and timestamps as 64-bit numbers, keys and values
    each as validity bits (None: no nulls), 32-bit offsets, data.
    """

    def __init__(self) -> None:
        self.count = 0
        self._offsets: array[int] = array("q")
        self._timestamps: array[int] = array("q")
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []

    @property
    def size_bytes(self) -> int:
        """Size of the collected keys and values."""
        return sum(len(cell or b"") for cell in (*self._keys, *self._values))

    def add(
        self,
        payload: Buffer,
        offsets: "array[int]",
        timestamps: "array[int]",
        key_starts: "array[int]",
        key_ends: "array[int]",
        value_starts: "array[int]",
        value_ends: "array[int]",
        low: int,
        high: int,
    ) -> None:
        """Adds the records from `low` up to, not including, `high` of a decoded batch."""
        for column in (offsets, timestamps, key_starts, value_starts):
            if not 0 <= low <= high or (len(column) and high > len(column)):
                raise ValueError("no such rows")
        keys = slices(payload, key_starts[low:high], key_ends[low:high])
        values = slices(payload, value_starts[low:high], value_ends[low:high])
        if self.size_bytes + sum(len(cell or b"") for cell in (*keys, *values)) > INT32_MAX:
            raise ValueError(BAD_RECORD_LENGTH)
        self._offsets.extend(offsets[low:high])
        self._timestamps.extend(timestamps[low:high])
        self._keys += keys
        self._values += values
        self.count += high - low

    def finish(self) -> "Collected":
        return (
            self.count,
            bytearray(self._offsets.tobytes()),
            bytearray(self._timestamps.tobytes()),
            _pack(self._keys),
            _pack(self._values),
        )


Cells = tuple[bytearray | None, bytearray, bytearray]
Collected = tuple[int, bytearray, bytearray, Cells, Cells]


def _pack(cells: list[bytes | None]) -> Cells:
    validity = bytearray((len(cells) + 7) // 8)
    ends = array("i", [0])
    data = bytearray()
    for index, cell in enumerate(cells):
        if cell is not None:
            validity[index >> 3] |= 1 << (index & 7)
            data += cell
        ends.append(len(data))
    return validity if None in cells else None, bytearray(ends.tobytes()), data
