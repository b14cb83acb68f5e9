"""Protobuf as a format of the registry.

A schema arrives as .proto text, or as the base64 of its file descriptor: Python's serializer sends
that, and requests it with `format=serialized`. Texts are stored as received, with their comments;
descriptors are stored as text.

Decoding of values written with a Protobuf schema, as Protobuf's JSON mapping. Confluent's
serializers write the message's path in the file before it: a count and indexes as zigzag varints;
a single 0 stands for the first message.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError

from penstock.state.registry.errors import invalid
from penstock.state.registry.limits import StepBudget
from penstock.state.registry.parsed_schemas import PROTOBUF, Parsed
from penstock.state.registry.protobuf.compatibility import unreadable
from penstock.state.registry.protobuf.linker import Linked, link
from penstock.state.registry.protobuf.parser import parse_proto
from penstock.state.registry.protobuf.printer import print_proto

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


BASE64: Final = re.compile(r"[A-Za-z0-9+/=\s]+\Z", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False)
class ProtobufSchema:
    """A parsed Protobuf schema."""

    linked: Linked
    text: str
    canonical: str

    @property
    def type(self) -> str:
        return PROTOBUF

    @property
    def record_name(self) -> str | None:
        file = self.linked.file
        if not file.message_type:
            return None
        name: str = file.message_type[0].name
        return f"{file.package}.{name}" if file.package else name

    def normalized(self) -> str:
        return print_proto(self.linked, sorts=True)

    def formatted(self, form: str) -> str:
        """Text; for `serialized` the base64 of the file descriptor."""
        if form == "serialized":
            return base64.b64encode(self.linked.file.SerializeToString()).decode()
        return self.text


class ProtobufFormat:
    """Parses and compares Protobuf schemas."""

    def parse(self, text: str, references: Mapping[str, Parsed]) -> ProtobufSchema:
        files: dict[str, Any] = {}
        for name, one in references.items():
            if not isinstance(one, ProtobufSchema):
                raise invalid(f'reference "{name[:200]}" is not a Protobuf schema')
            files[name] = one.linked.file
        for one in references.values():
            assert isinstance(one, ProtobufSchema)
            for name, file in one.linked.imports.items():
                files.setdefault(name, file)
        described = _descriptor(text)
        linked = link(described if described is not None else parse_proto(text), files)
        canonical = print_proto(linked)
        return ProtobufSchema(linked, text if described is None else canonical, canonical)

    def unreadable(self, reader: Parsed, writer: Parsed, budget: StepBudget) -> list[str]:
        assert isinstance(reader, ProtobufSchema)
        assert isinstance(writer, ProtobufSchema)
        return unreadable(writer.linked, reader.linked, budget)


def _descriptor(text: str) -> Any | None:
    """File descriptor of a text that is base64; None for other texts."""
    if not BASE64.match(text):
        return None
    file = pb.FileDescriptorProto()
    try:
        file.ParseFromString(base64.b64decode(text, validate=False))
    except (binascii.Error, DecodeError):
        raise invalid("neither .proto text nor the base64 of a file descriptor") from None
    return file
