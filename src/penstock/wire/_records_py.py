"""Codec of the records inside one batch in pure Python: the twin of `_records.pyx`.

Both modules have the same functions, and the same results and errors for the same bytes;
tests/property/test_records_twins.py verifies that. This one is the reference, and the fallback when
it was installed without a C compiler.

Invariants: no read past the end of the payload or of the record; a count is checked against the
remaining bytes before anything is allocated for it. Failures are `ValueError`;
`penstock.wire.records` turns them into refusals, and handles batch headers, checksums and
compression.
"""

from array import array
from collections.abc import Sequence
from typing import Final

from penstock.base.ports import Buffer

# Bits of a column selection.
OFFSETS: Final = 1
TIMESTAMPS: Final = 2
KEYS: Final = 4
VALUES: Final = 8
HEADERS: Final = 16

# length, attributes, timestamp delta, offset delta, key length, value length, header count
RECORD_BYTES_MIN: Final = 7
# key length, value length
HEADER_BYTES_MIN: Final = 2
# Maximum length of a decimal number in a header.
DIGITS_MAX: Final = 16

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
INT32_MAX: Final = (1 << 31) - 1

TRUNCATED: Final = "a number runs past the end of its record"
OVERLONG: Final = "a number has more bits than its type"
BAD_RECORD_LENGTH: Final = "the record's length is negative or runs past the end of the batch"
BAD_OFFSET: Final = "offset deltas do not increase within the batch's range"
BAD_TIMESTAMP: Final = "the timestamp does not fit 64 bits"
BAD_KEY: Final = "the key runs past the end of its record"
BAD_VALUE: Final = "the value runs past the end of its record"
BAD_HEADER_COUNT: Final = "the header count is negative or more than fits the record"
BAD_HEADER_KEY: Final = "a header key is null or runs past the end of its record"
BAD_HEADER_VALUE: Final = "a header value runs past the end of its record"
TRAILING: Final = "the record is longer than its fields"
BAD_COUNT: Final = "the record count is negative or more than fits the batch"
LEFT_OVER: Final = "bytes are left over after the last record"
BAD_SPAN: Final = "a span lies outside the payload"

RecordSpans = tuple[
    "array[int]",  # offsets
    "array[int]",  # timestamps
    "array[int]",  # key starts, -1 for null
    "array[int]",  # key ends
    "array[int]",  # value starts
    "array[int]",  # value ends
    "array[int]",  # header starts: where the first header begins
    "array[int]",  # header counts
]
Headers = Sequence[tuple[str, bytes | None]]
PlainRecord = tuple[int, int, bytes | None, bytes | None, Headers]


def decode(
    payload: Buffer,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    columns: int,
) -> RecordSpans:
    """Decodes the uncompressed records in one pass; checks every field, keeps the selected ones."""
    data = bytes(payload)
    end = len(data)
    if count < 0 or count * RECORD_BYTES_MIN > end:
        raise ValueError(BAD_COUNT)
    rows: list[tuple[int, ...]] = []
    position = 0
    delta = -1
    for index in range(count):
        try:
            size, position = _read_varint(data, position, end, 32)
            stop = position + size
            if size < 0 or stop > end:
                raise ValueError(BAD_RECORD_LENGTH)
            if size == 0:
                raise ValueError(TRUNCATED)
            row = _read_record(data, position, stop, base_timestamp, delta, last_offset_delta)
        except ValueError as error:
            raise ValueError(f"record {index}: {error}") from None
        position = stop
        delta = row[0]
        rows.append(row)
    if position != end:
        raise ValueError(LEFT_OVER)
    return _select(rows, base_offset, columns)


def decode_headers(
    payload: memoryview, start: int, count: int
) -> tuple[tuple[str, bytes | None], ...]:
    """Headers that `decode` found and checked. Keys that are not UTF-8 decode as in Java."""
    headers: list[tuple[str, bytes | None]] = []
    position, end = start, len(payload)
    for _ in range(count):
        key_start, key_end, position = _read_span(payload, position, end, BAD_HEADER_KEY)
        value_start, value_end, position = _read_span(payload, position, end, BAD_HEADER_VALUE)
        key = str(payload[key_start:key_end], "utf-8", "replace")
        value = None if value_start < 0 else bytes(payload[value_start:value_end])
        headers.append((key, value))
    return tuple(headers)


def header_numbers(
    payload: memoryview,
    starts: "array[int]",
    counts: "array[int]",
    prefix: bytes,
    names: tuple[bytes, ...],
) -> "tuple[array[int], ...] | None":
    """Decimal numbers in the headers of these names: one column per name, -1 without a header.

    None if the columns cannot hold everything: another header begins with `prefix`, one of these
    occurs twice, or its value is not a number of at most `DIGITS_MAX` digits.
    """
    if len(starts) != len(counts):
        raise ValueError(BAD_SPAN)
    columns = tuple(array("q", [-1]) * len(starts) for _ in names)
    end = len(payload)
    for index, (position, count) in enumerate(zip(starts, counts, strict=True)):
        if count > 0 and position < 0:
            raise ValueError(TRUNCATED)
        for _ in range(count):
            key_start, key_end, position = _read_span(payload, position, end, BAD_HEADER_KEY)
            value_start, value_end, position = _read_span(payload, position, end, BAD_HEADER_VALUE)
            key = bytes(payload[max(key_start, 0) : max(key_end, 0)])
            if not key.startswith(prefix):
                continue
            value = bytes(payload[value_start:value_end]) if value_start >= 0 else b""
            if key not in names or not value.isdigit() or len(value) > DIGITS_MAX:
                return None
            column = columns[names.index(key)]
            if column[index] >= 0:
                return None
            column[index] = int(value)
    return columns


def encode(
    records: Sequence[PlainRecord],
    reserve: int,
    base_offset: int,
    base_timestamp: int,
    keep_offsets: bool,
) -> bytearray:
    """Encodes records, uncompressed, after `reserve` zero bytes for the batch header."""
    parts = bytearray(reserve)
    body = bytearray()
    previous = -1
    for index, (offset, timestamp, key, value, headers) in enumerate(records):
        delta = offset - base_offset if keep_offsets else index
        if not previous < delta <= INT32_MAX:
            raise ValueError(BAD_OFFSET)
        previous = delta
        timestamp_delta = timestamp - base_timestamp
        if not INT64_MIN <= timestamp_delta <= INT64_MAX:
            raise ValueError(BAD_TIMESTAMP)
        body.clear()
        body.append(0)
        _write_varint(body, timestamp_delta)
        _write_varint(body, delta)
        _write_bytes(body, key)
        _write_bytes(body, value)
        _write_varint(body, len(headers))
        for name, content in headers:
            _write_bytes(body, name.encode())
            _write_bytes(body, content)
        _write_varint(parts, len(body))
        parts += body
        if len(parts) > INT32_MAX:
            raise ValueError(BAD_RECORD_LENGTH)
    return parts


def slices(payload: Buffer, starts: "array[int]", ends: "array[int]") -> list[bytes | None]:
    """Bytes of each span of a column, None for null."""
    data = memoryview(payload).cast("B")
    if len(starts) != len(ends):
        raise ValueError(BAD_SPAN)
    column: list[bytes | None] = []
    for start, end in zip(starts, ends, strict=True):
        if start >= 0 and not start <= end <= len(data):
            raise ValueError(BAD_SPAN)
        column.append(None if start < 0 else bytes(data[start:end]))
    return column


def _read_record(
    data: bytes | memoryview,
    position: int,
    stop: int,
    base_timestamp: int,
    previous: int,
    last_offset_delta: int,
) -> tuple[int, ...]:
    """Reads one record from its attributes on: offset delta, then the columns of `RecordSpans`."""
    # One byte of attributes, unused so far, is skipped.
    timestamp, position = _read_varint(data, position + 1, stop, 64)
    timestamp += base_timestamp
    if not INT64_MIN <= timestamp <= INT64_MAX:
        raise ValueError(BAD_TIMESTAMP)
    delta, position = _read_varint(data, position, stop, 32)
    if not previous < delta <= last_offset_delta:
        raise ValueError(BAD_OFFSET)
    key_start, key_end, position = _read_span(data, position, stop, BAD_KEY)
    value_start, value_end, position = _read_span(data, position, stop, BAD_VALUE)
    headers, position = _read_varint(data, position, stop, 32)
    header_start = position
    position = _skip_headers(data, position, stop, headers)
    if position != stop:
        raise ValueError(TRAILING)
    return delta, timestamp, key_start, key_end, value_start, value_end, header_start, headers


def _select(rows: list[tuple[int, ...]], base_offset: int, columns: int) -> RecordSpans:
    """Transposes the rows into columns; unselected columns are empty."""

    def column(field: int, wanted: int) -> "array[int]":
        return array("q", [row[field] for row in rows] if columns & wanted else ())

    return (
        array("q", [base_offset + row[0] for row in rows] if columns & OFFSETS else ()),
        column(1, TIMESTAMPS),
        column(2, KEYS),
        column(3, KEYS),
        column(4, VALUES),
        column(5, VALUES),
        column(6, HEADERS),
        column(7, HEADERS),
    )


def _read_varint(data: bytes | memoryview, position: int, stop: int, bits: int) -> tuple[int, int]:
    """Reads a zigzag number of at most `bits` bits that must end before `stop`."""
    if position < stop and (number := data[position]) < 0x80:
        return (number >> 1) ^ -(number & 1), position + 1
    number = shift = 0
    while True:
        if position >= stop:
            raise ValueError(TRUNCATED)
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise ValueError(OVERLONG)
    if number >> bits:
        raise ValueError(OVERLONG)
    return (number >> 1) ^ -(number & 1), position


def _read_span(
    data: bytes | memoryview, position: int, stop: int, reason: str
) -> tuple[int, int, int]:
    """Reads a length and skips that many bytes: returns their start, end and the next position."""
    size, position = _read_varint(data, position, stop, 32)
    if size < 0:
        return -1, -1, position
    if size > stop - position:
        raise ValueError(reason)
    return position, position + size, position + size


def _skip_headers(data: bytes | memoryview, position: int, stop: int, count: int) -> int:
    if count < 0 or count * HEADER_BYTES_MIN > stop - position:
        raise ValueError(BAD_HEADER_COUNT)
    for _ in range(count):
        start, _, position = _read_span(data, position, stop, BAD_HEADER_KEY)
        if start < 0:
            raise ValueError(BAD_HEADER_KEY)
        _, _, position = _read_span(data, position, stop, BAD_HEADER_VALUE)
    return position


def _write_varint(out: bytearray, number: int) -> None:
    number = number << 1 if number >= 0 else (~number << 1) | 1
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _write_bytes(out: bytearray, content: Buffer | None) -> None:
    if content is None:
        out.append(1)
    else:
        content = memoryview(content).cast("B")
        _write_varint(out, len(content))
        out += content
