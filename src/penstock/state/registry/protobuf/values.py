"""Decoding of values written with a Protobuf schema, as Protobuf's JSON mapping.

Confluent's serializers write the message's path in the file before it: a count and indexes as
zigzag varints; a single 0 stands for the first message.
"""

from typing import Any

from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError

from penstock.state.registry.protobuf.linker import Linked

INDEXES_MAX = 50
VARINT_BYTES_MAX = 10


def read_value(linked: Linked, data: bytes, start: int = 0) -> Any:
    """Decodes a value; raises ValueError for data that does not match the schema."""
    path, start = _read_path(data, start)
    pool = descriptor_pool.DescriptorPool()
    for file in (*linked.imports.values(), linked.file):
        pool.Add(file)
    file = pool.FindFileByName(linked.file.name)
    messages = list(linked.file.message_type)
    name = file.package
    for index in path:
        if not 0 <= index < len(messages):
            raise ValueError(f"the schema has no message with index {index}")
        name = f"{name}.{messages[index].name}" if name else messages[index].name
        messages = list(messages[index].nested_type)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    try:
        found = kind.FromString(data[start:])
        return json_format.MessageToDict(
            found, preserving_proto_field_name=True, descriptor_pool=pool
        )
    except (DecodeError, json_format.Error, TypeError) as error:
        raise ValueError(str(error)) from error


def _read_path(data: bytes, start: int) -> tuple[list[int], int]:
    count, start = _varint(data, start)
    if not 0 <= count <= INDEXES_MAX:
        raise ValueError(f"invalid message path of {count} indexes: at most {INDEXES_MAX}")
    path: list[int] = []
    for _ in range(count):
        index, start = _varint(data, start)
        path.append(index)
    return path or [0], start


def _varint(data: bytes, start: int) -> tuple[int, int]:
    value = 0
    for at, byte in enumerate(data[start : start + VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), start + at + 1
    raise ValueError(f"a number is truncated or longer than {VARINT_BYTES_MAX} bytes")
