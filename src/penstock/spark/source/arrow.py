"""Decodes fetched record batches to Arrow, only the selected columns.

The schema is exactly the one Spark expects: Spark refuses a batch whose types or order differ.
Small Kafka batches are joined, so that a fetch yields few Arrow batches.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from penstock.client.consumer.fetched import Fetched
from penstock.spark.range_planning import Range
from penstock.spark.settings import HEADERS
from penstock.wire.columns import Column, Columns
from penstock.wire.records import decode
from penstock.wire.rows import Cells, Collector

_NEEDED = {
    "key": Column.KEYS,
    "value": Column.VALUES,
    "offset": Column.OFFSETS,
    "timestamp": Column.TIMESTAMPS,
    HEADERS: Column.HEADERS,
}
_NOTHING = Column(0)
_MILLIS = pa.timestamp("ms", tz="UTC")
_NO_NUMBERS = array("q")
_BATCH_BYTES = 16 << 20
"""Size at which an Arrow batch ends; it may exceed this by one record batch."""
_CONSTANT_ROWS_MIN = 1 << 13
"""Minimum rows of a cached constant column, so that most batches only slice it."""


class ArrowDecoder:
    """Decodes the columns of one read."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self.names: list[str] = list(schema.names)
        self._needed = _NOTHING
        for name in self.names:
            self._needed |= _NEEDED.get(name, _NOTHING)
        self._bounded = self._needed | Column.OFFSETS
        self._has_headers = HEADERS in self.names
        self._constants: dict[str | int, Any] = {}

    def batches(self, fetched: Fetched, span: Range) -> Iterator[Any]:
        """Records of a range in fetched data, as few Arrow batches."""
        start = max(span.start, fetched.offset)
        collector = Collector()
        headers: list[Any] = []
        time_types: list[tuple[int, int]] = []
        for view, is_append_time in fetched.data_batches():
            is_inside = start <= _base_offset(view) and _last_offset(view) < span.end
            # If a batch straddles an end of the range, its offsets are needed to cut it.
            decoded = decode(view, columns=self._needed if is_inside else self._bounded)
            low, high = 0, len(decoded)
            if not is_inside:
                low = bisect_left(decoded.offsets, start)
                high = bisect_left(decoded.offsets, span.end)
            if low < high:
                self._collect(collector, decoded, low, high)
                time_types.append((high - low, int(is_append_time)))
                if self._has_headers:
                    headers += [_headers(decoded, index) for index in range(low, high)]
            if collector.size_bytes >= _BATCH_BYTES:
                yield self._batch(collector, span, time_types, headers)
                collector, headers, time_types = Collector(), [], []
        if collector.count:
            yield self._batch(collector, span, time_types, headers)

    def _collect(self, collector: Collector, decoded: Columns, low: int, high: int) -> None:
        offsets = decoded.offsets if self._needed & Column.OFFSETS else _NO_NUMBERS
        collector.add(
            decoded.payload,
            offsets,
            decoded.timestamps,
            decoded.key_starts,
            decoded.key_ends,
            decoded.value_starts,
            decoded.value_ends,
            low,
            high,
        )

    def _batch(
        self,
        collector: Collector,
        span: Range,
        time_types: list[tuple[int, int]],
        headers: list[Any],
    ) -> Any:
        count, offsets, timestamps, keys, values = collector.finish()
        arrays = []
        for field in self.schema:
            match field.name:
                case "key":
                    column = _binary(count, keys)
                case "value":
                    column = _binary(count, values)
                case "offset":
                    column = _int64s(pa.int64(), count, offsets)
                case "timestamp":
                    column = _int64s(_MILLIS, count, timestamps).cast(field.type)
                case "topic":
                    column = self._repeated(span.topic, count)
                case "partition":
                    column = self._repeated(span.partition, count)
                case "timestampType":
                    column = self._time_types(time_types, count)
                case _:
                    assert field.name == HEADERS
                    column = pa.array(headers, field.type)
            arrays.append(column)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _time_types(self, runs: list[tuple[int, int]], count: int) -> Any:
        kinds = {kind for _, kind in runs}
        if len(kinds) == 1:
            return self._repeated(kinds.pop(), count)
        return pa.concat_arrays([repeat(kind, length) for length, kind in runs])

    def _repeated(self, value: str | int, count: int) -> Any:
        """Column of one repeated value, a slice of a longer cached one."""
        known = self._constants.get(value)
        if known is None or len(known) < count:
            known = repeat(value, max(count, _CONSTANT_ROWS_MIN))
            self._constants[value] = known
        return known.slice(0, count)


def repeat(value: str | int, count: int) -> Any:
    """Column of one repeated string or 32-bit integer.

    Replaces `pyarrow.repeat`, which would import pandas: a third of a second in every process.
    """
    if isinstance(value, int):
        numbers = array("i", [value]) * count
        return pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(numbers)])
    encoded = value.encode()
    ends = array("i", [len(encoded) * index for index in range(count + 1)])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(encoded * count)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def range_rows(spans: Sequence[Range]) -> Any:
    """Arrow batch with one row per range."""
    arrays = [
        pa.concat_arrays([repeat(span.topic, 1) for span in spans]),
        pa.concat_arrays([repeat(span.partition, 1) for span in spans]),
        int64s([span.start for span in spans]),
        int64s([span.end for span in spans]),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=["topic", "partition", "start", "end"])


def int64s(numbers: Sequence[int]) -> Any:
    """Column of 64-bit integers; replaces `pyarrow.array`, which would import pandas."""
    return _int64s(pa.int64(), len(numbers), array("q", numbers))


def _binary(count: int, cells: Cells) -> Any:
    validity, offsets, data = cells
    bits = None if validity is None else pa.py_buffer(validity)
    return pa.Array.from_buffers(
        pa.binary(), count, [bits, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _int64s(kind: Any, count: int, numbers: "bytearray | array[int]") -> Any:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(numbers)])


def _headers(decoded: Columns, index: int) -> Sequence[dict[str, Any]] | None:
    """Headers of a record; None instead of an empty list, as in Spark's Kafka source."""
    found = decoded.headers(index)
    return [{"key": name, "value": content} for name, content in found] if found else None


def _base_offset(view: memoryview) -> int:
    return int.from_bytes(view[:8], "big", signed=True)


def _last_offset(view: memoryview) -> int:
    return _base_offset(view) + int.from_bytes(view[23:27], "big", signed=True)
