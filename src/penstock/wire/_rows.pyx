# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, binding=False
"""Conversion between records and Arrow columns, compiled: the twin of `_rows_py.py`, the reference.

The same functions, results and errors; tests/property/test_rows_twins.py verifies that.
Every row is compared with the size of the buffers before it is read.
"""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

import array as _array

from penstock.wire import _records_py as _errors

cdef array.array _INT32S = _array.array("i")


cdef class _Span:
    """An Arrow binary column, held open while it is read."""

    cdef Py_buffer validity
    cdef Py_buffer offsets
    cdef Py_buffer data
    cdef int opened
    cdef bint has_validity
    cdef Py_ssize_t skipped
    cdef Py_ssize_t size

    def __cinit__(self, column):
        bits, offsets, data, skipped = column
        self.opened = 0
        self.skipped = skipped
        self.has_validity = bits is not None
        PyObject_GetBuffer(offsets, &self.offsets, PyBUF_SIMPLE)
        self.opened = 1
        PyObject_GetBuffer(data, &self.data, PyBUF_SIMPLE)
        self.opened = 2
        if self.has_validity:
            PyObject_GetBuffer(bits, &self.validity, PyBUF_SIMPLE)
            self.opened = 3
        self.size = self.offsets.len // 4 - 1

    def __dealloc__(self):
        if self.opened > 0:
            PyBuffer_Release(&self.offsets)
        if self.opened > 1:
            PyBuffer_Release(&self.data)
        if self.opened > 2:
            PyBuffer_Release(&self.validity)

    cdef inline bint read(
        self, Py_ssize_t row, const uint8_t **start, int64_t *length
    ) noexcept nogil:
        """Locates a value; a length of -1 is null. False if the row lies outside the buffers."""
        cdef Py_ssize_t at = row + self.skipped
        cdef const int32_t *places
        cdef int64_t begin, end
        if row < 0 or at < 0 or at >= self.size:
            return False
        if self.has_validity:
            if at >> 3 >= self.validity.len:
                return False
            if not (<const uint8_t *>self.validity.buf)[at >> 3] >> (at & 7) & 1:
                length[0] = -1
                return True
        places = <const int32_t *>self.offsets.buf
        begin = places[at]
        end = places[at + 1]
        if begin < 0 or begin > end or end > self.data.len:
            return False
        start[0] = <const uint8_t *>self.data.buf + begin
        length[0] = end - begin
        return True


cdef inline uint32_t murmur2(const uint8_t *data, int64_t length) noexcept nogil:
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t h = <uint32_t>0x9747B28C ^ <uint32_t>length
    cdef uint32_t k
    cdef int64_t whole = length & ~3
    cdef int64_t at = 0
    while at < whole:
        k = (
            <uint32_t>data[at]
            | <uint32_t>data[at + 1] << 8
            | <uint32_t>data[at + 2] << 16
            | <uint32_t>data[at + 3] << 24
        )
        k *= m
        k ^= k >> 24
        k *= m
        h *= m
        h ^= k
        at += 4
    if length > whole:
        k = data[whole]
        if length > whole + 1:
            k |= <uint32_t>data[whole + 1] << 8
        if length > whole + 2:
            k |= <uint32_t>data[whole + 2] << 16
        h ^= k
        h *= m
    h ^= h >> 13
    h *= m
    h ^= h >> 15
    return h


def key_partitions(column, Py_ssize_t count, int32_t partition_count):
    """Partition of each key by the hash of Kafka's clients; -1 without a key."""
    if partition_count <= 0:
        raise ValueError("a topic has at least one partition")
    cdef _Span keys = _Span(column)
    cdef array.array found = array.clone(_INT32S, count, False)
    cdef int32_t *out = <int32_t *>found.data.as_voidptr
    cdef const uint8_t *start = NULL
    cdef int64_t length = 0
    cdef uint32_t hashed
    cdef Py_ssize_t row
    cdef bint good = True
    with nogil:
        for row in range(count):
            if not keys.read(row, &start, &length):
                good = False
                break
            if length < 0:
                out[row] = -1
            else:
                hashed = murmur2(start, length) & 0x7FFFFFFF
                out[row] = <int32_t>(hashed % <uint32_t>partition_count)
    if not good:
        raise ValueError(_errors.BAD_SPAN)
    return found


def group_rows(array.array partitions, Py_ssize_t partition_count):
    """Rows ordered by partition, and the start of each partition (and one more for the end)."""
    cdef Py_ssize_t count = len(partitions), row
    cdef array.array order = array.clone(_INT32S, count, False)
    cdef array.array starts = array.clone(_INT32S, partition_count + 1, True)
    cdef array.array used = array.clone(_INT32S, partition_count, True)
    cdef int32_t *chosen = <int32_t *>partitions.data.as_voidptr
    cdef int32_t *out = <int32_t *>order.data.as_voidptr
    cdef int32_t *begin = <int32_t *>starts.data.as_voidptr
    cdef int32_t *taken = <int32_t *>used.data.as_voidptr
    cdef int32_t partition
    if partitions.itemsize != 4:
        raise ValueError("partitions are 32-bit numbers")
    for row in range(count):
        partition = chosen[row]
        if partition < 0 or partition >= partition_count:
            raise ValueError(f"row {row}: there is no partition {partition}")
        begin[partition + 1] += 1
    for row in range(partition_count):
        begin[row + 1] += begin[row]
    for row in range(count):
        partition = chosen[row]
        out[begin[partition] + taken[partition]] = <int32_t>row
        taken[partition] += 1
    return order, starts


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


cdef inline uint8_t *write_field(uint8_t *out, const uint8_t *start, int64_t length) noexcept nogil:
    out = write_varint(out, length)
    if length > 0:
        memcpy(out, start, length)
        out += length
    return out


def encode_rows(
    array.array rows,
    Py_ssize_t first,
    Py_ssize_t last,
    keys,
    values,
    timestamps,
    int64_t timestamp,
    Py_ssize_t reserve,
    Py_ssize_t bytes_max,
):
    """Encodes rows[first:last] as records, after `reserve` zero bytes; returns where it stopped."""
    if rows.itemsize != 4 or not 0 <= first < last <= len(rows):
        raise ValueError("no such rows")
    cdef _Span value_column = _Span(values)
    cdef _Span key_column = _Span(keys) if keys is not None else None
    cdef bint has_keys = keys is not None
    cdef bint has_times = timestamps is not None
    cdef array.array moments = timestamps if timestamps is not None else None
    cdef int64_t *times = <int64_t *>moments.data.as_voidptr if has_times else NULL
    cdef Py_ssize_t time_count = len(moments) if has_times else 0
    cdef int32_t *order = <int32_t *>rows.data.as_voidptr
    cdef bytearray batch = bytearray(reserve)
    cdef Py_ssize_t used = reserve, size = reserve, at, row, need
    cdef const uint8_t *key_start = NULL
    cdef const uint8_t *value_start = NULL
    cdef int64_t key_length = -1, value_length = -1, moment = timestamp, base = timestamp
    cdef int64_t delta, body
    cdef uint8_t *out
    if has_times and moments.itemsize != 8:
        raise ValueError("timestamps are 64-bit numbers")
    # All rows are checked before any is written, as in the twin.
    for at in range(first, last):
        row = order[at]
        if not value_column.read(row, &value_start, &value_length):
            raise ValueError(_errors.BAD_SPAN)
        if has_keys and not key_column.read(row, &key_start, &key_length):
            raise ValueError(_errors.BAD_SPAN)
        if has_times and row >= time_count:
            raise ValueError(_errors.BAD_SPAN)
    if has_times:
        base = times[order[first]]
    for at in range(first, last):
        row = order[at]
        value_column.read(row, &value_start, &value_length)
        if has_keys:
            key_column.read(row, &key_start, &key_length)
        if has_times:
            moment = times[row]
        if (moment < INT64_MIN + base) if base >= 0 else (moment > INT64_MAX + base):
            raise ValueError(_errors.BAD_TIMESTAMP)
        delta = moment - base
        body = (
            2
            + varint_bytes(delta)
            + varint_bytes(at - first)
            + varint_bytes(key_length)
            + varint_bytes(value_length)
            + (key_length if key_length > 0 else 0)
            + (value_length if value_length > 0 else 0)
        )
        need = varint_bytes(body) + body
        if at > first and used + need > bytes_max:
            PyByteArray_Resize(batch, used)
            return batch, at
        if used + need > INT32_MAX:
            raise ValueError(_errors.BAD_RECORD_LENGTH)
        if need > size - used:
            size = max(2 * size, used + need, 4096)
            PyByteArray_Resize(batch, size)
        out = <uint8_t *>PyByteArray_AS_STRING(batch) + used
        out = write_varint(out, body)
        out[0] = 0
        out = write_varint(out + 1, delta)
        out = write_varint(out, at - first)
        out = write_field(out, key_start, key_length)
        out = write_field(out, value_start, value_length)
        out[0] = 0
        used += need
    PyByteArray_Resize(batch, used)
    return batch, last


cdef class _Growing:
    """A bytearray that grows by doubling; `reserve` makes space for raw writes."""

    cdef bytearray content
    cdef Py_ssize_t used
    cdef Py_ssize_t size

    def __cinit__(self):
        self.size = 0
        self.used = 0
        self.content = bytearray()

    cdef uint8_t *reserve(self, Py_ssize_t more) except NULL:
        if more > self.size - self.used:
            self.size = max(self.size * 2, self.used + more, 4096)
            PyByteArray_Resize(self.content, self.size)
        return <uint8_t *>PyByteArray_AS_STRING(self.content) + self.used

    cdef bytearray take(self):
        PyByteArray_Resize(self.content, self.used)
        return self.content


cdef class _Cells:
    """Builder of one binary column."""

    cdef _Growing bits
    cdef _Growing ends
    cdef _Growing data
    cdef Py_ssize_t rows
    cdef Py_ssize_t nulls

    def __cinit__(self):
        self.bits = _Growing()
        self.ends = _Growing()
        self.data = _Growing()
        self.rows = 0
        self.nulls = 0
        (<int32_t *>self.ends.reserve(4))[0] = 0
        self.ends.used = 4

    cdef Py_ssize_t measure(
        self, Py_ssize_t limit, long long *starts, long long *stops, Py_ssize_t low, Py_ssize_t high
    ) except -1:
        """Total size of the spans, each checked against the payload."""
        cdef Py_ssize_t total = 0, row
        for row in range(low, high):
            if starts[row] >= 0:
                if starts[row] > stops[row] or stops[row] > limit:
                    raise ValueError(_errors.BAD_SPAN)
                total += stops[row] - starts[row]
        return total

    cdef int add(
        self,
        const uint8_t *payload,
        Py_ssize_t total,
        long long *starts,
        long long *stops,
        Py_ssize_t low,
        Py_ssize_t high,
    ) except -1:
        cdef Py_ssize_t count = high - low, row, need, length
        cdef uint8_t *out = self.data.reserve(total)
        cdef int32_t *end = <int32_t *>self.ends.reserve(4 * count)
        cdef uint8_t *bits
        cdef int32_t at = <int32_t>self.data.used
        need = (self.rows + count + 7) // 8 - self.bits.used
        if need > 0:
            memset(self.bits.reserve(need), 0, need)
            self.bits.used += need
        bits = <uint8_t *>PyByteArray_AS_STRING(self.bits.content)
        for row in range(low, high):
            if starts[row] >= 0:
                length = stops[row] - starts[row]
                memcpy(out, payload + starts[row], length)
                out += length
                at += <int32_t>length
                bits[self.rows >> 3] |= 1 << (self.rows & 7)
            else:
                self.nulls += 1
            end[0] = at
            end += 1
            self.rows += 1
        self.data.used = at
        self.ends.used += 4 * count
        return 0

    cdef tuple take(self):
        return self.bits.take() if self.nulls else None, self.ends.take(), self.data.take()


cdef class Collector:
    """Joins the records of many batches into Arrow's buffers; an unselected column stays empty."""

    cdef readonly Py_ssize_t count
    cdef _Growing offsets
    cdef _Growing timestamps
    cdef _Cells keys
    cdef _Cells values

    def __cinit__(self):
        self.count = 0
        self.offsets = _Growing()
        self.timestamps = _Growing()
        self.keys = _Cells()
        self.values = _Cells()

    @property
    def size_bytes(self):
        """Size of the collected keys and values."""
        return self.keys.data.used + self.values.data.used

    def add(
        self,
        payload,
        array.array offsets,
        array.array timestamps,
        array.array key_starts,
        array.array key_ends,
        array.array value_starts,
        array.array value_ends,
        Py_ssize_t low,
        Py_ssize_t high,
    ):
        """Adds the records from `low` up to, not including, `high` of a decoded batch."""
        cdef Py_buffer view
        cdef Py_ssize_t key_bytes = 0, value_bytes = 0
        for column in (offsets, timestamps, key_starts, value_starts):
            if not 0 <= low <= high or (len(column) and high > len(column)):
                raise ValueError("no such rows")
        if len(key_starts) != len(key_ends) or len(value_starts) != len(value_ends):
            raise ValueError(_errors.BAD_SPAN)
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            if len(key_starts):
                key_bytes = self.keys.measure(
                    view.len, key_starts.data.as_longlongs, key_ends.data.as_longlongs, low, high
                )
            if len(value_starts):
                value_bytes = self.values.measure(
                    view.len,
                    value_starts.data.as_longlongs,
                    value_ends.data.as_longlongs,
                    low,
                    high,
                )
            if self.size_bytes + key_bytes + value_bytes > INT32_MAX:
                raise ValueError(_errors.BAD_RECORD_LENGTH)
            if len(key_starts):
                self.keys.add(
                    <const uint8_t *>view.buf,
                    key_bytes,
                    key_starts.data.as_longlongs,
                    key_ends.data.as_longlongs,
                    low,
                    high,
                )
            if len(value_starts):
                self.values.add(
                    <const uint8_t *>view.buf,
                    value_bytes,
                    value_starts.data.as_longlongs,
                    value_ends.data.as_longlongs,
                    low,
                    high,
                )
        finally:
            PyBuffer_Release(&view)
        copy_numbers(self.offsets, offsets, low, high)
        copy_numbers(self.timestamps, timestamps, low, high)
        self.count += high - low

    def finish(self):
        return (
            self.count,
            self.offsets.take(),
            self.timestamps.take(),
            self.keys.take(),
            self.values.take(),
        )


cdef int copy_numbers(
    _Growing target, array.array numbers, Py_ssize_t low, Py_ssize_t high
) except -1:
    if len(numbers) and high > low:
        memcpy(target.reserve(8 * (high - low)), numbers.data.as_longlongs + low, 8 * (high - low))
        target.used += 8 * (high - low)
    return 0
