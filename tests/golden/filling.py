"""Sample values of any declared type: one with every field set, and the smallest one.

Values follow from the type alone: fields are counted in the order of their declaration and each
number, text and byte string is another one, so that two fields that change places change the
bytes. Names of classes and modules do not matter.
"""

import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, TypeVar, cast

import msgspec

from penstock.wire.codec import reader, writer
from penstock.wire.schema import REQUIRED, Field, wire_of

T = TypeVar("T")
UUID_BYTES: Final = 16


class _Filler:
    """Makes values, counting from one."""

    def __init__(self) -> None:
        self._count = 0

    def _next(self) -> int:
        self._count += 1
        return self._count

    def value(self, kind: Any) -> Any:
        """A value of a type, with everything in it set."""
        origin = typing.get_origin(kind)
        arguments = typing.get_args(kind)
        if origin in (typing.Union, types.UnionType):
            return self.value(next(one for one in arguments if one is not type(None)))
        if origin is tuple:
            if len(arguments) == 2 and arguments[1] is ...:
                return (self.value(arguments[0]), self.value(arguments[0]))
            return tuple(self.value(one) for one in arguments)
        if origin in (list, Sequence):
            return [self.value(arguments[0]), self.value(arguments[0])]
        if origin in (dict, Mapping):
            return {self.value(arguments[0]): self.value(arguments[1]) for _ in range(2)}
        if origin is typing.Literal:
            return arguments[-1]
        return self._plain(kind)

    def _plain(self, kind: Any) -> Any:
        if kind in (int, float):
            return kind(self._next())
        if kind is str:
            return f"text {self._next()}"
        if kind is bytes:
            return b"bytes %d \xff" % self._next()
        if kind is bool:
            return True
        if kind is Any or kind is object:
            return {"any": [self._next(), None, True]}
        if kind is msgspec.Raw:
            return msgspec.Raw(b'{"raw": %d}' % self._next())
        if isinstance(kind, type) and issubclass(kind, Enum):
            return list(kind)[-1]
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self.struct(kind)
        if isinstance(kind, type) and issubclass(kind, tuple):  # A NamedTuple.
            hints = typing.get_type_hints(kind)
            return kind(*(self.value(hint) for hint in hints.values()))
        raise TypeError(f"no sample of {kind!r}: give the value itself")

    def struct(self, kind: type[T]) -> T:
        """A msgspec struct with all fields set, none of them to its default."""
        values = {}
        hints = typing.get_type_hints(kind)
        for field in msgspec.structs.fields(cast("Any", kind)):
            value = self.value(hints[field.name])
            while value == field.default:
                value = not value if isinstance(value, bool) else self.value(hints[field.name])
            values[field.name] = value
        return kind(**values)

    def wire(self, kind: type[T], version: int) -> T:
        """A message or a part of one, with all fields of the version set."""
        values = {
            field.name: self._field(field, version) if field.is_in(version) else field.absent()
            for field in wire_of(kind).fields
        }
        return kind(**values)

    def _field(self, field: Field, version: int) -> Any:
        value = self._wire_value(field, version)
        while value == field.default:
            value = not value if isinstance(value, bool) else self._wire_value(field, version)
        return value

    def _wire_value(self, field: Field, version: int) -> Any:
        match field.kind:
            case "string":
                return f"text {self._next()}"
            case "bytes" | "records":
                return b"bytes %d" % self._next()
            case "uuid":
                return bytes([self._next()]) * UUID_BYTES
            case "boolean":
                return True
            case "float64":
                return float(self._next())
            case "nested":
                return self.wire(cast("type[Any]", field.of), version)
            case "array":
                of = field.of
                if isinstance(of, Field):
                    return [self._wire_value(of, version) for _ in range(2)]
                return [self.wire(cast("type[Any]", of), version) for _ in range(2)]
            case _:
                return self._next()


def full(kind: type[T]) -> T:
    """A value of a type with every field set to something else than its default."""
    return cast("T", _Filler().value(kind))


def full_message(kind: type[T], version: int) -> T:
    """A message with every field that the version has."""
    return _Filler().wire(kind, version)


def minimal(kind: type[T]) -> T:
    """A value with nothing set that has a default, and the rest zero or empty."""
    return cast("T", _smallest(kind))


def _smallest(kind: Any) -> Any:
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if type(None) in arguments else _smallest(arguments[0])
    if origin is tuple:
        is_fixed = arguments[-1] is not ...
        return tuple(_smallest(one) for one in arguments) if is_fixed else ()
    if origin in (list, dict):
        return origin()
    if kind is Any:
        return None
    if issubclass(kind, Enum):
        return next(iter(kind))
    if issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        return kind(
            **{
                field.name: _smallest(hints[field.name])
                for field in msgspec.structs.fields(kind)
                if field.required
            }
        )
    return kind()


def minimal_message(kind: type[T], version: int) -> T:
    """A message with only its required fields, and those zero or empty."""
    values = {}
    for field in wire_of(kind).fields:
        if field.default is not REQUIRED:
            continue
        value = field.absent()
        if field.kind == "nested" and field.is_in(version) and not field.is_nullable(version):
            value = minimal_message(cast("type[Any]", field.of), version)
        elif field.kind == "records":
            value = b""
        elif value is None and not field.is_nullable(version):
            value = {"string": "", "bytes": b"", "array": ()}.get(field.kind)
        values[field.name] = value
    return kind(**values)


def encode_message(message: Any, version: int) -> bytes:
    parts: list[Any] = []
    writer(type(message), version)(message, parts)
    return b"".join(parts)


def decode_message(kind: type[T], version: int, data: bytes) -> T:
    message, end = reader(kind, version)(memoryview(data), 0, len(data))
    assert end == len(data)
    return message
