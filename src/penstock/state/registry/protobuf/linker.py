"""Resolution of the type names in a file descriptor, and validation of the whole file.

A name is searched for from the innermost scope outwards, as protoc does, among the types of the
file and of its imports: referenced schemas by the names of their references, and the well-known
files. The descriptor pool of the protobuf package checks the rest, such as duplicate numbers and
enums that do not begin with zero.

Well-known files may be imported without a reference. Google's well-known types come with the
protobuf package, Google's common types with another one that may be missing; Confluent's two are
defined here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb
from google.protobuf import descriptor_pool

from penstock.state.registry.errors import invalid
from penstock.state.registry.limits import StepBudget, check_depth
from penstock.state.registry.protobuf.parser import parse_proto

FIELD: Final = pb.FieldDescriptorProto
MAIN: Final = "default.proto"
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


@dataclass(frozen=True, slots=True)
class NamedType:
    """A message or an enum by its full name, with its package."""

    name: str
    package: str
    is_local: bool
    message: Any = None
    enum: Any = None

    @property
    def local_name(self) -> str:
        """Name without the package."""
        return self.name.removeprefix(f"{self.package}.") if self.package else self.name


@dataclass(frozen=True, slots=True, eq=False)
class Linked:
    """A file with all names resolved."""

    file: Any
    types: dict[str, NamedType]
    """Types of the file and of its imports, by full name."""
    imports: dict[str, Any]
    """Files that it needs, directly or transitively, in dependency order."""

    def find(self, name: str, scope: str) -> NamedType | None:
        return find_type(self.types, name, scope)


def link(file: Any, references: dict[str, Any]) -> Linked:
    """Resolves every type name in the file; `references`: files that were linked before."""
    if not file.name:
        file.name = MAIN
    imports: dict[str, Any] = {}
    for name in file.dependency:
        _gather(name, references, imports, 0)
    types: dict[str, NamedType] = {}
    for one in imports.values():
        types.update((found.name, found) for found in _types(one, is_local=False))
    for found in _types(file, is_local=True):
        if found.name in types:
            raise invalid(f"{found.name} is defined twice")
        types[found.name] = found
    linked = Linked(file, types, imports)
    for found in types.values():
        if found.is_local and found.message is not None:
            _check_reserved(found.message)
    _Linker(linked).link_file()
    _check(linked)
    return linked


def find_type(types: dict[str, NamedType], name: str, scope: str) -> NamedType | None:
    if name.startswith("."):
        return types.get(name[1:])
    while True:
        found = types.get(f"{scope}.{name}" if scope else name)
        if found is not None or not scope:
            return found
        scope = scope.rpartition(".")[0]


def _gather(name: str, references: dict[str, Any], found: dict[str, Any], depth: int) -> None:
    """Adds the named file after everything that it imports."""
    check_depth(depth)
    if name in found:
        return
    file = references.get(name)
    if file is None:
        file = _well_known(name)
    if file is None:
        raise invalid(f'unknown import "{name[:200]}": declare it as a reference')
    if file.name != name:
        copy = pb.FileDescriptorProto()
        copy.CopyFrom(file)
        copy.name = name
        file = copy
    for inner in file.dependency:
        if inner == name:
            raise invalid(f'"{name[:200]}" imports itself')
        _gather(inner, references, found, depth + 1)
    found[name] = file


def _types(file: Any, *, is_local: bool) -> Iterator[NamedType]:
    def inside(messages: Any, enums: Any, scope: str) -> Iterator[NamedType]:
        for enum in enums:
            yield NamedType(_join(scope, enum.name), file.package, is_local, enum=enum)
        for message in messages:
            name = _join(scope, message.name)
            yield NamedType(name, file.package, is_local, message=message)
            yield from inside(message.nested_type, message.enum_type, name)

    yield from inside(file.message_type, file.enum_type, file.package)


class _Linker:
    def __init__(self, linked: Linked) -> None:
        self._linked = linked

    def link_file(self) -> None:
        file = self._linked.file
        for field in file.extension:
            self._field(field, file.package)
        for message in file.message_type:
            self._message(message, _join(file.package, message.name))
        for service in file.service:
            for method in service.method:
                scope = _join(file.package, service.name)
                method.input_type = self._absolute(method.input_type, scope)
                method.output_type = self._absolute(method.output_type, scope)

    def _message(self, message: Any, scope: str) -> None:
        for field in (*message.field, *message.extension):
            self._field(field, scope)
        for nested in message.nested_type:
            self._message(nested, _join(scope, nested.name))

    def _field(self, field: Any, scope: str) -> None:
        if field.extendee:
            field.extendee = self._absolute(field.extendee, scope)
        if not field.type_name:
            return
        found = self._linked.find(field.type_name, scope)
        if found is None:
            raise invalid(f'"{field.type_name[:200]}" of field {field.name} is not defined')
        field.type_name = f".{found.name}"
        if found.enum is not None:
            field.type = FIELD.TYPE_ENUM
        elif field.type != FIELD.TYPE_GROUP:
            field.type = FIELD.TYPE_MESSAGE

    def _absolute(self, name: str, scope: str) -> str:
        found = self._linked.find(name, scope)
        if found is None:
            raise invalid(f'"{name[:200]}" is not defined')
        return f".{found.name}"


def _check(linked: Linked) -> None:
    """Builds everything in a descriptor pool, which validates it."""
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in (*linked.imports.values(), linked.file):
            pool.AddSerializedFile(file.SerializeToString())
        built = pool.FindFileByName(linked.file.name)
        for message in built.message_types_by_name.values():
            len(message.fields)
    except (TypeError, KeyError, ValueError) as error:
        reason = " ".join(str(error).split()).removeprefix("Couldn't build proto file into ")
        raise invalid(reason[:500]) from None


def _check_reserved(message: Any) -> None:
    """Checks reserved fields, which the pool does not."""
    names = set(message.reserved_name)
    StepBudget().spend(len(message.field) * len(message.reserved_range) // 16)
    for field in message.field:
        is_taken = any(one.start <= field.number < one.end for one in message.reserved_range)
        if is_taken or field.name in names:
            raise invalid(f"field {field.name} of {message.name} is reserved")


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


@lru_cache(maxsize=64)
def _well_known(name: str) -> Any | None:
    """Returns the well-known file of that name, linked; None if there is none."""
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
    file = parse_proto(CONFLUENT[name])
    file.name = name
    return link(file, {}).file
