"""Protobuf messages as Spark's types, parsed by the protobuf package.

Types are those of Spark's `from_protobuf`, except that unsigned numbers get a type wide enough:
uint32 is bigint, uint64 decimal(20,0). Enums are strings, google.protobuf.Timestamp a timestamp,
Duration an interval, wrappers the wrapped type.

A payload names its message in the file (Confluent's message indexes). It is read with the reader's
message of that name: Protobuf resolves versions by field numbers.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.spark.option_values import OptionError, nearest
from penstock.spark.schemas.format import Decode, Encode, Malformed, reason_of
from penstock.state.registry.parsed_schemas import Parsed
from penstock.state.registry.protobuf.schema import ProtobufSchema

Converter: TypeAlias = Callable[[Any], Any]

_F: Final = FieldDescriptor
_TYPES: Final[dict[int, DataType]] = {
    _F.TYPE_INT32: IntegerType(),
    _F.TYPE_SINT32: IntegerType(),
    _F.TYPE_SFIXED32: IntegerType(),
    _F.TYPE_UINT32: LongType(),
    _F.TYPE_FIXED32: LongType(),
    _F.TYPE_INT64: LongType(),
    _F.TYPE_SINT64: LongType(),
    _F.TYPE_SFIXED64: LongType(),
    _F.TYPE_UINT64: DecimalType(20, 0),
    _F.TYPE_FIXED64: DecimalType(20, 0),
    _F.TYPE_BOOL: BooleanType(),
    _F.TYPE_FLOAT: FloatType(),
    _F.TYPE_DOUBLE: DoubleType(),
    _F.TYPE_STRING: StringType(),
    _F.TYPE_BYTES: BinaryType(),
    _F.TYPE_ENUM: StringType(),
}
_UNSIGNED: Final = (_F.TYPE_UINT64, _F.TYPE_FIXED64)
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_DURATION: Final = "google.protobuf.Duration"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in (
        *("Double", "Float", "Int64", "UInt64", "Int32", "UInt32"),
        *("Bool", "String", "Bytes"),
    )
)
_DEPTH_MAX: Final = 50
_INDEXES_MAX: Final = 100
_VARINT_BYTES_MAX: Final = 10
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ProtobufCodec:
    """Reader and writer for one message of the reader's schema: the named one, or the first."""

    def __init__(self, parsed: Parsed, message: str | None = None) -> None:
        assert isinstance(parsed, ProtobufSchema)
        file = _build(parsed)
        self._descriptor = _first(file) if message is None else _named(file, message)
        self._indexes = write_indexes(_path(self._descriptor))
        self.spark_type = _message_type(self._descriptor, 0)

    def decoder(self, writer: Parsed) -> Decode:
        if not isinstance(writer, ProtobufSchema):
            raise Malformed("WrongSchemaType", f"value was written with a {writer.type} schema")
        written = _build(writer)
        kind = message_factory.GetMessageClass(self._descriptor)
        wanted = self._descriptor.full_name
        change = _read_converter(self._descriptor)
        fitting: dict[bytes, bool] = {}

        def decode(payload: bytes) -> Any:
            path, start = read_indexes(payload)
            head = payload[:start]
            if head not in fitting:
                found = _at(written, path).full_name
                if found != wanted:
                    raise Malformed("WrongMessage", f"value is a {found}, not a {wanted}")
                if len(fitting) < _INDEXES_MAX:
                    fitting[head] = True
            try:
                return change(kind.FromString(payload[start:]))
            except (DecodeError, UnicodeDecodeError) as error:
                raise Malformed("Malformed", f"invalid {wanted}: {reason_of(error)}") from None

        return decode

    def encoder(self) -> Encode:
        kind = message_factory.GetMessageClass(self._descriptor)
        write = _message_writer(self._descriptor)
        head = self._indexes

        def encode(value: Any) -> bytes:
            message = kind()
            try:
                write(message, value)
                written: bytes = message.SerializeToString()
            except (EncodeError, TypeError, ValueError, AttributeError) as error:
                raise Malformed(
                    "Unencodable", f"value does not match the schema: {reason_of(error)}"
                ) from None
            return head + written

        return encode


# -- message indexes ----------------------------------------------------------------------------


def read_indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    """Message indexes in front of a payload, and the position of their end."""
    count, position = _varint(payload, 0)
    if count == 0:
        return (0,), position
    if not 0 < count <= _INDEXES_MAX:
        raise Malformed("Malformed", f"invalid number of message indexes: {count}")
    path = []
    for _ in range(count):
        index, position = _varint(payload, position)
        path.append(index)
    return tuple(path), position


def write_indexes(path: Sequence[int]) -> bytes:
    if list(path) == [0]:
        return b"\0"
    return b"".join(_zigzag(number) for number in (len(path), *path))


def _varint(payload: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    for offset in range(_VARINT_BYTES_MAX):
        if position + offset >= len(payload):
            raise Malformed("Malformed", "invalid message indexes: payload ends too early")
        byte = payload[position + offset]
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return (number >> 1) ^ -(number & 1), position + offset + 1
    raise Malformed("Malformed", "invalid message indexes: varint is too long")


def _zigzag(number: int) -> bytes:
    left, found = number << 1, bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def _build(parsed: ProtobufSchema) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in (*parsed.linked.imports.values(), parsed.linked.file):
        pool.AddSerializedFile(file.SerializeToString())
    return pool.FindFileByName(parsed.linked.file.name)


def _messages(file: Any) -> list[Descriptor]:
    """Top-level messages in the order of the file, which is that of the indexes."""
    proto = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(proto)
    return [file.message_types_by_name[one.name] for one in proto.message_type]


def _first(file: Any) -> Descriptor:
    messages = _messages(file)
    if not messages:
        raise OptionError("the Protobuf schema has no message")
    return messages[0]


def _named(file: Any, name: str) -> Descriptor:
    known: dict[str, Descriptor] = {}
    left = _messages(file)
    while left:
        one = left.pop()
        known[one.full_name] = one
        left += one.nested_types
    short = {full.removeprefix(f"{file.package}."): one for full, one in known.items()}
    found = known.get(name) or short.get(name)
    if found is None:
        close = nearest(name, short)
        hint = f"did you mean {close!r}?" if close else f"messages: {', '.join(sorted(short))}"
        raise OptionError(f"the schema has no message {name!r}: {hint}")
    return found


def _path(descriptor: Descriptor) -> list[int]:
    above = descriptor.containing_type
    beside = _messages(descriptor.file) if above is None else above.nested_types
    index = [one.full_name for one in beside].index(descriptor.full_name)
    return [*(_path(above) if above is not None else ()), index]


def _at(file: Any, path: Sequence[int]) -> Descriptor:
    messages = _messages(file)
    for depth, index in enumerate(path):
        if not 0 <= index < len(messages):
            raise Malformed("Malformed", f"the schema has no message with indexes {list(path)}")
        if depth == len(path) - 1:
            return messages[index]
        messages = list(messages[index].nested_types)
    raise Malformed("Malformed", "missing message indexes")


# -- types --------------------------------------------------------------------------------------


def _message_type(descriptor: Descriptor, depth: int) -> DataType:
    if depth > _DEPTH_MAX:
        raise OptionError(f"recursive message {descriptor.full_name} has no Spark type")
    if descriptor.full_name == _TIMESTAMP:
        return TimestampType()
    if descriptor.full_name == _DURATION:
        return DayTimeIntervalType()
    if descriptor.full_name in _WRAPPERS:
        return _TYPES[descriptor.fields[0].type]
    return StructType(
        [StructField(field.name, _field_type(field, depth)) for field in descriptor.fields]
    )


def _field_type(field: FieldDescriptor, depth: int) -> DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return MapType(_one_type(entry["key"], depth), _one_type(entry["value"], depth))
    one = _one_type(field, depth)
    return ArrayType(one) if field.is_repeated else one


def _one_type(field: FieldDescriptor, depth: int) -> DataType:
    if field.message_type is not None:
        return _message_type(field.message_type, depth + 1)
    return _TYPES[field.type]


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


# -- reading ------------------------------------------------------------------------------------


def _read_converter(descriptor: Descriptor) -> Converter:
    if descriptor.full_name == _TIMESTAMP:
        return lambda value: (
            _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
        )
    if descriptor.full_name == _DURATION:
        return lambda value: timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if descriptor.full_name in _WRAPPERS:
        inner = _scalar_read_converter(descriptor.fields[0])
        return lambda value: value.value if inner is None else inner(value.value)
    plan = [
        (field.name, field.has_presence, _field_read_converter(field))
        for field in descriptor.fields
    ]

    def change(message: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, has_presence, inner in plan:
            if has_presence and not message.HasField(name):
                found[name] = None
            else:
                value = getattr(message, name)
                found[name] = value if inner is None else inner(value)
        return found

    return change


def _field_read_converter(field: FieldDescriptor) -> Converter | None:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        key = _one_read_converter(entry["key"])
        one = _one_read_converter(entry["value"])
        return lambda value: [
            (_apply(key, name), _apply(one, content)) for name, content in value.items()
        ]
    inner = _one_read_converter(field)
    if not field.is_repeated:
        return inner
    return lambda value: [_apply(inner, content) for content in value]


def _one_read_converter(field: FieldDescriptor) -> Converter | None:
    return (
        _scalar_read_converter(field)
        if field.message_type is None
        else _read_converter(field.message_type)
    )


def _scalar_read_converter(field: FieldDescriptor) -> Converter | None:
    if field.enum_type is not None:
        names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
        # A value unknown to this version stays a number.
        return lambda value: names.get(value) or str(value)
    return Decimal if field.type in _UNSIGNED else None


def _apply(change: Converter | None, value: Any) -> Any:
    return value if change is None else change(value)


# -- writing ------------------------------------------------------------------------------------


def _message_writer(descriptor: Descriptor) -> Callable[[Any, Any], None]:
    """Function that fills a message with the values of a row; null leaves a field unset."""
    if descriptor.full_name == _TIMESTAMP:
        return _write_timestamp
    if descriptor.full_name == _DURATION:
        return lambda message, value: message.FromTimedelta(value)
    if descriptor.full_name in _WRAPPERS:
        convert = _scalar_write_converter(descriptor.fields[0])
        return lambda message, value: setattr(message, "value", convert(value))
    plan = {field.name: _field_writer(field) for field in descriptor.fields}

    def write(message: Any, row: Any) -> None:
        for name, value in row.items():
            if value is None:
                continue
            if name not in plan:
                raise ValueError(f"message {descriptor.name} has no field {name!r}")
            plan[name](message, value)
        message.SetInParent()

    return write


def _write_timestamp(message: Any, value: datetime) -> None:
    message.FromDatetime(value.astimezone(UTC) if value.tzinfo else value)


def _field_writer(field: FieldDescriptor) -> Callable[[Any, Any], None]:
    name = field.name
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return _map_writer(name, _scalar_write_converter(entry["key"]), entry["value"])
    if field.message_type is not None:
        inner = _message_writer(field.message_type)
        if field.is_repeated:
            return _repeated_writer(name, inner)
        return lambda message, row: inner(getattr(message, name), row)
    convert = _scalar_write_converter(field)
    if field.is_repeated:
        return lambda message, values: getattr(message, name).extend(map(convert, values))
    return lambda message, value: setattr(message, name, convert(value))


def _repeated_writer(name: str, inner: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    def write(message: Any, rows: Any) -> None:
        for row in rows:
            inner(getattr(message, name).add(), row)

    return write


def _map_writer(name: str, key: Converter, content: FieldDescriptor) -> Callable[[Any, Any], None]:
    def write(message: Any, pairs: Any) -> None:
        target = getattr(message, name)
        for found, value in dict(pairs).items():
            if content.message_type is not None:
                _message_writer(content.message_type)(target[key(found)], value)
            else:
                target[key(found)] = _scalar_write_converter(content)(value)

    return write


def _scalar_write_converter(field: FieldDescriptor) -> Converter:
    if field.enum_type is not None:
        numbers: dict[Any, int] = {
            name: one.number for name, one in field.enum_type.values_by_name.items()
        }

        def number(value: Any) -> int:
            if value in numbers:
                return numbers[value]
            if not str(value).lstrip("-").isdecimal():
                raise ValueError(f"unknown value of enum {field.enum_type.name}")
            return int(value)

        return number
    if field.type in _UNSIGNED:
        return int
    return lambda value: value
