"""Files that every Protobuf schema may import without a reference.

Google's well-known types come with the protobuf package, Google's common types with another one
that may be missing; Confluent's two are defined here.
"""

from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb

GOOGLE: Final = frozenset(
    {"any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct"}
    | {"timestamp", "type", "wrappers"}
)
COMMON: Final = frozenset(
    {"calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction"}
    | {"interval", "latlng", "localized_text", "money", "month", "phone_number", "postal_address"}
    | {"quaternion", "timeofday"}
)
CONFLUENT: Final = {
    "confluent/meta.proto": """
        syntax = "proto3";
        package confluent;
        import "google/protobuf/descriptor.proto";
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
    """,
    "confluent/type/decimal.proto": """
        syntax = "proto3";
        package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
    """,
}


@lru_cache(maxsize=64)
def well_known(name: str) -> Any | None:
    """Returns the named file, linked; None if it is not one of these."""
    if name in CONFLUENT:
        return _confluent(name)
    folder, _, stem = name.removesuffix(".proto").rpartition("/")
    if folder == "google/protobuf" and stem in GOOGLE:
        return _packaged(f"google.protobuf.{stem}_pb2")
    if folder == "google/type" and stem in COMMON:
        return _packaged(f"google.type.{stem}_pb2")
    return None


def _packaged(module: str) -> Any | None:
    try:
        described = import_module(module).DESCRIPTOR
    except ImportError:
        return None
    file = pb.FileDescriptorProto()
    described.CopyToProto(file)
    return file


def _confluent(name: str) -> Any:
    from penstock.state.registry.protobuf.linker import link
    from penstock.state.registry.protobuf.parser import parse_proto

    file = parse_proto(CONFLUENT[name])
    file.name = name
    return link(file, {}).file
