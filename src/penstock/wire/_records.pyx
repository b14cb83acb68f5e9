# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, binding=False
"""Codec of the records inside one batch, compiled: the twin of `_records_py.py`, the reference.

The same functions, results and errors for the same bytes; tests/property/test_records_twins.py
verifies that. The bounds are those of the reference, and matter more here: every read is preceded
by a comparison with the end of the record or of the payload, and every count is compared with the
remaining bytes before an array of that size is allocated.
"""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

import array as _array

from penstock.wire import _records_py as _twin

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1

cdef enum:
    OFFSETS = 1
    TIMESTAMPS = 2
    KEYS = 4
    VALUES = 8
    HEADERS = 16
    RECORD_BYTES_MIN = 7
    HEADER_BYTES_MIN = 2
    DIGITS_MAX = 16
    NAMES_MAX = 8

# Reasons to refuse a record; the index is the code that the loops below return.
cdef enum Fault:
    FINE
    TRUNCATED
    OVERLONG
    BAD_RECORD_LENGTH
    BAD_OFFSET
    BAD_TIMESTAMP
    BAD_KEY
    BAD_VALUE
    BAD_HEADER_COUNT
    BAD_HEADER_KEY
    BAD_HEADER_VALUE
    TRAILING

cdef tuple REASONS = (
    "",
    _twin.TRUNCATED,
    _twin.OVERLONG,
    _twin.BAD_RECORD_LENGTH,
    _twin.BAD_OFFSET,
    _twin.BAD_TIMESTAMP,
    _twin.BAD_KEY,
    _twin.BAD_VALUE,
    _twin.BAD_HEADER_COUNT,
    _twin.BAD_HEADER_KEY,
    _twin.BAD_HEADER_VALUE,
    _twin.TRAILING,
)

cdef array.array _INT64S = _array.array("q")


# Targets of the selected columns; the arrays of the others are empty and never written.
cdef struct Target:
    int64_t *offsets
    int64_t *timestamps
    int64_t *key_starts
    int64_t *key_ends
    int64_t *value_starts
    int64_t *value_ends
    int64_t *header_starts
    int64_t *header_counts


cdef inline Fault read_varint(
    const uint8_t *data, Py_ssize_t *position, Py_ssize_t stop, int64_t *number
) noexcept nogil:
    """Reads a zigzag number of at most 32 bits that must end before `stop`."""
    cdef Py_ssize_t at = position[0]
    cdef uint64_t bits
    cdef int shift = 7
    cdef uint8_t byte
    if at >= stop:
        return TRUNCATED
    bits = data[at]
    at += 1
    if bits >= 0x80:
        bits &= 0x7F
        while True:
            if at >= stop:
                return TRUNCATED
            byte = data[at]
            at += 1
            bits |= <uint64_t>(byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= 32:
                return OVERLONG
        if bits >> 32:
            return OVERLONG
    position[0] = at
    number[0] = <int64_t>(bits >> 1) ^ -<int64_t>(bits & 1)
    return FINE


cdef inline Fault read_varlong(
    const uint8_t *data, Py_ssize_t *position, Py_ssize_t stop, int64_t *number
) noexcept nogil:
    """Reads a zigzag number of at most 64 bits that must end before `stop`."""
    cdef Py_ssize_t at = position[0]
    cdef uint64_t bits
    cdef int shift = 7
    cdef uint8_t byte
    if at >= stop:
        return TRUNCATED
    bits = data[at]
    at += 1
    if bits >= 0x80:
        bits &= 0x7F
        while True:
            if at >= stop:
                return TRUNCATED
            byte = data[at]
            at += 1
            if byte < 0x80:
                # Of the tenth byte only the lowest bit still fits.
                if shift == 63 and byte > 1:
                    return OVERLONG
                bits |= <uint64_t>byte << shift
                break
            bits |= <uint64_t>(byte & 0x7F) << shift
            shift += 7
            if shift >= 64:
                return OVERLONG
    position[0] = at
    number[0] = <int64_t>((bits >> 1) ^ (0 - (bits & 1)))
    return FINE


cdef inline Fault read_span(
    const uint8_t *data,
    Py_ssize_t *position,
    Py_ssize_t stop,
    Fault fault,
    int64_t *start,
    int64_t *end,
) noexcept nogil:
    """Reads a length and skips that many bytes; start and end are -1 for null."""
    cdef int64_t size
    cdef Fault failed = read_varint(data, position, stop, &size)
    if failed:
        return failed
    if size < 0:
        start[0] = -1
        end[0] = -1
        return FINE
    if size > stop - position[0]:
        return fault
    start[0] = position[0]
    position[0] += size
    end[0] = position[0]
    return FINE


cdef Fault skip_headers(
    const uint8_t *data, Py_ssize_t *position, Py_ssize_t stop, int64_t count
) noexcept nogil:
    cdef int64_t start, end
    cdef Fault failed
    if count < 0 or count * HEADER_BYTES_MIN > stop - position[0]:
        return BAD_HEADER_COUNT
    for _ in range(count):
        failed = read_span(data, position, stop, BAD_HEADER_KEY, &start, &end)
        if failed:
            return failed
        if start < 0:
            return BAD_HEADER_KEY
        failed = read_span(data, position, stop, BAD_HEADER_VALUE, &start, &end)
        if failed:
            return failed
    return FINE


cdef Fault read_records(
    const uint8_t *data,
    Py_ssize_t end,
    int64_t count,
    int64_t base_offset,
    int64_t last_offset_delta,
    int64_t base_timestamp,
    Target *target,
    int columns,
    Py_ssize_t *position,
    int64_t *index,
) noexcept nogil:
    """Fills the target; at a fault `index` is the record that has it."""
    cdef Py_ssize_t stop
    cdef int64_t size, delta, previous = -1, timestamp, headers
    cdef int64_t key_start, key_end, value_start, value_end, header_start
    cdef int64_t i
    cdef Fault failed
    for i in range(count):
        index[0] = i
        failed = read_varint(data, position, end, &size)
        if failed:
            return failed
        if size < 0 or size > end - position[0]:
            return BAD_RECORD_LENGTH
        if size == 0:
            return TRUNCATED
        stop = position[0] + size
        # One byte of attributes, unused so far, is skipped.
        position[0] += 1
        failed = read_varlong(data, position, stop, &timestamp)
        if failed:
            return failed
        if timestamp >= 0:
            if base_timestamp > INT64_MAX - timestamp:
                return BAD_TIMESTAMP
        elif base_timestamp < INT64_MIN - timestamp:
            return BAD_TIMESTAMP
        failed = read_varint(data, position, stop, &delta)
        if failed:
            return failed
        if delta <= previous or delta > last_offset_delta:
            return BAD_OFFSET
        previous = delta
        failed = read_span(data, position, stop, BAD_KEY, &key_start, &key_end)
        if failed:
            return failed
        failed = read_span(data, position, stop, BAD_VALUE, &value_start, &value_end)
        if failed:
            return failed
        failed = read_varint(data, position, stop, &headers)
        if failed:
            return failed
        header_start = position[0]
        if headers != 0:
            failed = skip_headers(data, position, stop, headers)
            if failed:
                return failed
        if position[0] != stop:
            return TRAILING
        if columns & OFFSETS:
            target.offsets[i] = base_offset + delta
        if columns & TIMESTAMPS:
            target.timestamps[i] = base_timestamp + timestamp
        if columns & KEYS:
            target.key_starts[i] = key_start
            target.key_ends[i] = key_end
        if columns & VALUES:
            target.value_starts[i] = value_start
            target.value_ends[i] = value_end
        if columns & HEADERS:
            target.header_starts[i] = header_start
            target.header_counts[i] = headers
    return FINE


def decode(
    payload,
    count,
    int64_t base_offset,
    int64_t last_offset_delta,
    int64_t base_timestamp,
    int columns,
):
    """Decodes the uncompressed records in one pass; checks every field, keeps the selected ones."""
    cdef Py_buffer view
    cdef Target target
    cdef Py_ssize_t position = 0
    cdef int64_t index = 0
    cdef Fault failed = FINE
    cdef int64_t size
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        if count < 0 or count > view.len // RECORD_BYTES_MIN:
            raise ValueError(_twin.BAD_COUNT)
        size = count
        offsets = array.clone(_INT64S, size if columns & OFFSETS else 0, False)
        timestamps = array.clone(_INT64S, size if columns & TIMESTAMPS else 0, False)
        key_starts = array.clone(_INT64S, size if columns & KEYS else 0, False)
        key_ends = array.clone(_INT64S, size if columns & KEYS else 0, False)
        value_starts = array.clone(_INT64S, size if columns & VALUES else 0, False)
        value_ends = array.clone(_INT64S, size if columns & VALUES else 0, False)
        header_starts = array.clone(_INT64S, size if columns & HEADERS else 0, False)
        header_counts = array.clone(_INT64S, size if columns & HEADERS else 0, False)
        target.offsets = <int64_t *>offsets.data.as_voidptr
        target.timestamps = <int64_t *>timestamps.data.as_voidptr
        target.key_starts = <int64_t *>key_starts.data.as_voidptr
        target.key_ends = <int64_t *>key_ends.data.as_voidptr
        target.value_starts = <int64_t *>value_starts.data.as_voidptr
        target.value_ends = <int64_t *>value_ends.data.as_voidptr
        target.header_starts = <int64_t *>header_starts.data.as_voidptr
        target.header_counts = <int64_t *>header_counts.data.as_voidptr
        with nogil:
            failed = read_records(
                <const uint8_t *>view.buf,
                view.len,
                size,
                base_offset,
                last_offset_delta,
                base_timestamp,
                &target,
                columns,
                &position,
                &index,
            )
        if failed:
            raise ValueError(f"record {index}: {REASONS[<int>failed]}")
        if position != view.len:
            raise ValueError(_twin.LEFT_OVER)
    finally:
        PyBuffer_Release(&view)
    return (
        offsets,
        timestamps,
        key_starts,
        key_ends,
        value_starts,
        value_ends,
        header_starts,
        header_counts,
    )


cdef inline uint64_t zigzag(int64_t number) noexcept nogil:
    return (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)


cdef inline int varint_bytes(int64_t number) noexcept nogil:
    cdef uint64_t bits = zigzag(number) >> 7
    cdef int size = 1
    while bits:
        size += 1
        bits >>= 7
    return size


cdef inline uint8_t *write_varint(uint8_t *out, int64_t number) noexcept nogil:
    cdef uint64_t bits = zigzag(number)
    while bits > 0x7F:
        out[0] = <uint8_t>(bits & 0x7F) | 0x80
        out += 1
        bits >>= 7
    out[0] = <uint8_t>bits
    return out + 1


cdef inline uint8_t *write_bytes(uint8_t *out, bytes content) noexcept:
    cdef Py_ssize_t size
    if content is None:
        out[0] = 1
        return out + 1
    size = PyBytes_GET_SIZE(content)
    out = write_varint(out, size)
    memcpy(out, PyBytes_AS_STRING(content), size)
    return out + size


cdef inline bytes as_bytes(content):
    """Keys and values are bytes; anything else that holds bytes is copied."""
    if content is None or type(content) is bytes:
        return <bytes>content
    return bytes(memoryview(content))


cdef inline Py_ssize_t field_bytes(bytes content) noexcept:
    """Number of bytes that `write_bytes` will write."""
    cdef Py_ssize_t size
    if content is None:
        return 1
    size = PyBytes_GET_SIZE(content)
    return varint_bytes(size) + size


cdef class _Buffer:
    """A bytearray that grows by doubling; `reserve` makes space for raw writes."""

    cdef bytearray content
    cdef Py_ssize_t used
    cdef Py_ssize_t size

    def __cinit__(self, Py_ssize_t reserve):
        self.size = reserve + 1024
        self.content = bytearray(self.size)
        self.used = reserve

    cdef uint8_t *reserve(self, Py_ssize_t more) except NULL:
        if more > self.size - self.used:
            if self.used + more > INT32_MAX:
                raise ValueError(_twin.BAD_RECORD_LENGTH)
            self.size = max(self.size * 2, self.used + more)
            PyByteArray_Resize(self.content, self.size)
        return <uint8_t *>PyByteArray_AS_STRING(self.content) + self.used


cdef inline int64_t difference(object number, int64_t base, str reason) except? -1:
    """`number - base`, or an error if that needs more than 64 bits."""
    cdef int overflow = 0
    cdef int64_t wide = PyLong_AsLongLongAndOverflow(number, &overflow)
    if overflow or (wide < INT64_MIN + base if base >= 0 else wide > INT64_MAX + base):
        raise ValueError(reason)
    return wide - base


cdef list header_fields(headers):
    """Names and values alternating, as bytes."""
    cdef list fields = []
    for name, content in headers:
        fields.append((<str?>name).encode())
        fields.append(as_bytes(content))
    return fields


def encode(
    records, Py_ssize_t reserve, int64_t base_offset, int64_t base_timestamp, bint keep_offsets
):
    """Encodes records, uncompressed, after `reserve` zero bytes for the batch header."""
    cdef _Buffer buffer = _Buffer(reserve)
    cdef int64_t delta = -1, previous = -1, timestamp_delta
    cdef Py_ssize_t body, header_count
    cdef uint8_t *out
    cdef bytes key, value
    cdef list fields
    for offset, timestamp, raw_key, raw_value, headers in records:
        delta = difference(offset, base_offset, _twin.BAD_OFFSET) if keep_offsets else delta + 1
        if delta <= previous or delta > INT32_MAX:
            raise ValueError(_twin.BAD_OFFSET)
        previous = delta
        timestamp_delta = difference(timestamp, base_timestamp, _twin.BAD_TIMESTAMP)
        key = as_bytes(raw_key)
        value = as_bytes(raw_value)
        header_count = len(headers)
        body = (
            1
            + varint_bytes(timestamp_delta)
            + varint_bytes(delta)
            + field_bytes(key)
            + field_bytes(value)
            + varint_bytes(header_count)
        )
        fields = None
        if header_count:
            fields = header_fields(headers)
            for content in fields:
                body += field_bytes(<bytes>content)
        out = buffer.reserve(body + 5)
        out = write_varint(out, body)
        out[0] = 0
        out = write_varint(out + 1, timestamp_delta)
        out = write_varint(out, delta)
        out = write_bytes(out, key)
        out = write_bytes(out, value)
        out = write_varint(out, header_count)
        if fields is not None:
            for content in fields:
                out = write_bytes(out, <bytes>content)
        buffer.used += varint_bytes(body) + body
    PyByteArray_Resize(buffer.content, buffer.used)
    return buffer.content


def slices(payload, array.array starts, array.array ends):
    """Bytes of each span of a column, None for null."""
    cdef Py_buffer view
    cdef Py_ssize_t count = len(starts), i
    cdef int64_t[::1] begin = starts
    cdef int64_t[::1] finish = ends
    cdef list column = []
    if len(ends) != count:
        raise ValueError(_twin.BAD_SPAN)
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        for i in range(count):
            if begin[i] < 0:
                column.append(None)
            elif begin[i] > finish[i] or finish[i] > view.len:
                raise ValueError(_twin.BAD_SPAN)
            else:
                column.append(
                    PyBytes_FromStringAndSize(
                        <const char *>view.buf + begin[i], finish[i] - begin[i]
                    )
                )
    finally:
        PyBuffer_Release(&view)
    return column


def decode_headers(payload, Py_ssize_t start, Py_ssize_t count):
    """Headers of one record, which `decode` found and checked."""
    cdef Py_buffer view
    cdef const uint8_t *data
    cdef Py_ssize_t position = start
    cdef int64_t key_start, key_end, value_start, value_end
    cdef Fault failed
    cdef list headers = []
    if start < 0:
        raise ValueError(_twin.TRUNCATED)
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        data = <const uint8_t *>view.buf
        for _ in range(count):
            failed = read_span(data, &position, view.len, BAD_HEADER_KEY, &key_start, &key_end)
            if not failed:
                failed = read_span(
                    data, &position, view.len, BAD_HEADER_VALUE, &value_start, &value_end
                )
            if failed:
                raise ValueError(REASONS[<int>failed])
            headers.append((
                PyUnicode_DecodeUTF8(
                    <const char *>data + max(key_start, 0), key_end - key_start, "replace"
                ),
                None
                if value_start < 0
                else PyBytes_FromStringAndSize(
                    <const char *>data + value_start, value_end - value_start
                ),
            ))
    finally:
        PyBuffer_Release(&view)
    return tuple(headers)


# Header names to look for, and the columns for their values.
cdef struct Named:
    const char *prefix
    Py_ssize_t prefix_size
    int count
    const char *names[NAMES_MAX]
    Py_ssize_t sizes[NAMES_MAX]
    int64_t *columns[NAMES_MAX]


cdef int64_t read_digits(const uint8_t *text, Py_ssize_t size) noexcept nogil:
    """Parses a decimal number; -1 if it is not one."""
    cdef int64_t number = 0
    cdef Py_ssize_t i
    if size < 1 or size > DIGITS_MAX:
        return -1
    for i in range(size):
        if text[i] < 48 or text[i] > 57:
            return -1
        number = number * 10 + (text[i] - 48)
    return number


cdef bint note_number(
    Named *named, Py_ssize_t index, const uint8_t *key, Py_ssize_t size, int64_t number
) noexcept nogil:
    """Stores the number; False if the key is not one of the names, or occurs a second time."""
    cdef int i
    for i in range(named.count):
        if size == named.sizes[i] and memcmp(key, named.names[i], size) == 0:
            if named.columns[i][index] >= 0:
                return False
            named.columns[i][index] = number
            return True
    return False


cdef Fault read_numbers(
    const uint8_t *data,
    Py_ssize_t end,
    const int64_t *starts,
    const int64_t *counts,
    Py_ssize_t count,
    Named *named,
    bint *is_all,
) noexcept nogil:
    cdef Py_ssize_t i, position
    cdef int64_t key_start, key_end, value_start, value_end, number, left
    cdef Fault failed
    for i in range(count):
        position = starts[i]
        left = counts[i]
        if left > 0 and position < 0:
            return TRUNCATED
        while left > 0:
            left -= 1
            failed = read_span(data, &position, end, BAD_HEADER_KEY, &key_start, &key_end)
            if failed:
                return failed
            failed = read_span(data, &position, end, BAD_HEADER_VALUE, &value_start, &value_end)
            if failed:
                return failed
            if key_start < 0:
                key_start = key_end = 0
            if (
                key_end - key_start < named.prefix_size
                or memcmp(data + key_start, named.prefix, named.prefix_size) != 0
            ):
                continue
            number = -1
            if value_start >= 0:
                number = read_digits(data + value_start, value_end - value_start)
            if number < 0 or not note_number(
                named, i, data + key_start, key_end - key_start, number
            ):
                is_all[0] = False
                return FINE
    return FINE


def header_numbers(payload, array.array starts, array.array counts, bytes prefix, tuple names):
    """Decimal numbers in the headers of these names: one column per name, -1 without a header."""
    cdef Py_buffer view
    cdef Named named
    cdef Py_ssize_t count = len(starts), at
    cdef int64_t[::1] begin = starts
    cdef int64_t[::1] number = counts
    cdef array.array column
    cdef bytes name
    cdef bint is_all = True
    cdef Fault failed = FINE
    cdef list columns = []
    if len(counts) != count:
        raise ValueError(_twin.BAD_SPAN)
    assert len(names) <= NAMES_MAX
    named.prefix = PyBytes_AS_STRING(prefix)
    named.prefix_size = PyBytes_GET_SIZE(prefix)
    named.count = 0
    for name in names:
        column = array.clone(_INT64S, count, False)
        for at in range(count):
            column.data.as_longlongs[at] = -1
        columns.append(column)
        named.names[named.count] = PyBytes_AS_STRING(name)
        named.sizes[named.count] = PyBytes_GET_SIZE(name)
        named.columns[named.count] = <int64_t *>column.data.as_voidptr
        named.count += 1
    if not count:
        return tuple(columns)
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            failed = read_numbers(
                <const uint8_t *>view.buf, view.len, &begin[0], &number[0], count, &named, &is_all
            )
    finally:
        PyBuffer_Release(&view)
    if failed:
        raise ValueError(REASONS[<int>failed])
    return tuple(columns) if is_all else None
