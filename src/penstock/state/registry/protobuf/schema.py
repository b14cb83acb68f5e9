"""Protobuf as a format of the registry.

A schema arrives as .proto text, or as the base64 of its file descriptor: Python's serializer sends
that, and requests it with `format=serialized`. Texts are stored as received, with their comments;
descriptors are stored as text.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb
from google.protobuf.message import DecodeError

from penstock.state.registry.errors import invalid
from penstock.state.registry.limits import StepBudget
from penstock.state.registry.parsed_schemas import PROTOBUF, Parsed
from penstock.state.registry.protobuf.compatibility import unreadable
from penstock.state.registry.protobuf.linker import Linked, link
from penstock.state.registry.protobuf.parser import parse_proto
from penstock.state.registry.protobuf.printer import print_proto

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
