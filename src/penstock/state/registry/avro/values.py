"""Decoding of values written with an Avro schema (Avro 1.12, binary encoding), for display.

Bytes that are not UTF-8 become `{"base64": ...}`, and logical types become readable: a date, a
time, a decimal. Raises ValueError for data that does not match the schema.

Bounds: `ITEMS_MAX` values in all, `DEPTH_MAX` levels; lengths are checked against the remaining
bytes.
"""

import struct
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from penstock.state.registry.avro.parser import AvroType
from penstock.state.registry.limits import DEPTH_MAX

ITEMS_MAX = 100_000
VARINT_BYTES_MAX = 10
EPOCH = date(1970, 1, 1)


class ValueReading:
    """Decoder of one value."""

    def __init__(self, data: bytes, start: int = 0) -> None:
        self._data = data
        self._at = start
        self._items = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def read(self, kind: AvroType, depth: int = 0) -> Any:
        self._items += 1
        if depth > DEPTH_MAX or self._items > ITEMS_MAX:
            raise ValueError(
                f"the value is too large: at most {ITEMS_MAX} items, {DEPTH_MAX} levels deep"
            )
        value = _READERS[kind.kind](self, kind, depth)
        logical = _LOGICAL.get(str(kind.others.get("logicalType")))
        return value if logical is None or isinstance(value, dict) else logical(value, kind)

    # -- primitive types --------------------------------------------------------------------

    def take(self, count: int) -> bytes:
        if not 0 <= count <= self.left:
            raise ValueError(f"truncated value: {count} bytes needed, {self.left} left")
        self._at += count
        return self._data[self._at - count : self._at]

    def long(self) -> int:
        shift = value = 0
        for _ in range(VARINT_BYTES_MAX):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
        raise ValueError(f"a number is longer than {VARINT_BYTES_MAX} bytes")

    def text(self) -> str:
        return self.take(self.long()).decode()

    # -- complex types ----------------------------------------------------------------------

    def record(self, kind: AvroType, depth: int) -> dict[str, Any]:
        return {field.name: self.read(field.type, depth + 1) for field in kind.fields}

    def enum(self, kind: AvroType, depth: int) -> str:
        return kind.symbols[self._index(len(kind.symbols))]

    def union(self, kind: AvroType, depth: int) -> Any:
        return self.read(kind.branches[self._index(len(kind.branches))], depth + 1)

    def array(self, kind: AvroType, depth: int) -> list[Any]:
        assert kind.items is not None
        found: list[Any] = []
        while count := self._block():
            for _ in range(count):
                found.append(self.read(kind.items, depth + 1))  # noqa: PERF401
        return found

    def map(self, kind: AvroType, depth: int) -> dict[str, Any]:
        assert kind.items is not None
        found: dict[str, Any] = {}
        while count := self._block():
            for _ in range(count):
                name = self.text()
                found[name] = self.read(kind.items, depth + 1)
        return found

    def _block(self) -> int:
        count = self.long()
        if count < 0:
            self.long()  # The size of the block in bytes, for readers that skip it.
            count = -count
        if count > ITEMS_MAX:
            raise ValueError(f"a block has {count} items: at most {ITEMS_MAX}")
        return count

    def _index(self, count: int) -> int:
        index = self.long()
        if not 0 <= index < count:
            raise ValueError(f"index {index} is out of range: the schema has {count} alternatives")
        return index


def read_value(root: AvroType, data: bytes, start: int = 0) -> Any:
    """Decodes the value that extends from `start` to the end."""
    reading = ValueReading(data, start)
    value = reading.read(root)
    if reading.left:
        raise ValueError(f"{reading.left} bytes are left after the value")
    return value


def _shown_bytes(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def _bytes(reading: ValueReading, kind: AvroType, data: bytes) -> Any:
    if kind.others.get("logicalType") == "decimal":
        scale = kind.others.get("scale", 0)
        whole = int.from_bytes(data, "big", signed=True)
        return str(Decimal(whole).scaleb(-scale)) if isinstance(scale, int) else str(whole)
    return _shown_bytes(data)


_READERS: Mapping[str, Callable[[ValueReading, AvroType, int], Any]] = {
    "null": lambda reading, kind, depth: None,
    "boolean": lambda reading, kind, depth: reading.take(1) != b"\0",
    "int": lambda reading, kind, depth: reading.long(),
    "long": lambda reading, kind, depth: reading.long(),
    "float": lambda reading, kind, depth: struct.unpack("<f", reading.take(4))[0],
    "double": lambda reading, kind, depth: struct.unpack("<d", reading.take(8))[0],
    "bytes": lambda reading, kind, depth: _bytes(reading, kind, reading.take(reading.long())),
    "fixed": lambda reading, kind, depth: _bytes(reading, kind, reading.take(kind.size)),
    "string": lambda reading, kind, depth: reading.text(),
    "record": ValueReading.record,
    "error": ValueReading.record,
    "enum": ValueReading.enum,
    "union": ValueReading.union,
    "array": ValueReading.array,
    "map": ValueReading.map,
}


def _moment(per_second: int) -> Callable[[Any, AvroType], Any]:
    def shown(value: Any, kind: AvroType) -> Any:
        try:
            return datetime.fromtimestamp(value / per_second, UTC).isoformat()
        except (OverflowError, OSError, ValueError):
            return value

    return shown


def _date(value: Any, kind: AvroType) -> Any:
    try:
        return (EPOCH + timedelta(days=value)).isoformat()
    except OverflowError:
        return value


_LOGICAL: Mapping[str, Callable[[Any, AvroType], Any]] = {
    "date": _date,
    "timestamp-millis": _moment(1_000),
    "timestamp-micros": _moment(1_000_000),
}
