"""Canonical printing of a file descriptor as .proto text.

Texts that differ only in blanks, comments or the way they write type names give the same output,
and so do a text and the descriptor that protoc compiled from it.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb

from penstock.state.registry.protobuf.linker import Linked

FIELD: Final = pb.FieldDescriptorProto
SCALAR_NAMES: Final = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in FIELD.Type.items()
    if name not in ("TYPE_ENUM", "TYPE_MESSAGE", "TYPE_GROUP")
}
LABEL_NAMES: Final = {
    FIELD.LABEL_OPTIONAL: "optional",
    FIELD.LABEL_REQUIRED: "required",
    FIELD.LABEL_REPEATED: "repeated",
}
EDITIONS: Final = {1000: "2023", 1001: "2024"}
INDENT: Final = "  "


def print_proto(linked: Linked, *, sorts: bool = False) -> str:
    """Prints a file. `sorts`: imports and options by name, for texts that differ only in order."""
    return "\n".join(_Printer(linked, sorts).file()) + "\n"


class _Printer:
    def __init__(self, linked: Linked, sorts: bool) -> None:
        self._linked = linked
        self._sorts = sorts
        self._syntax = linked.file.syntax or "proto2"

    def file(self) -> Iterator[str]:
        file = self._linked.file
        if self._syntax == "editions":
            yield f'edition = "{EDITIONS.get(file.edition, file.edition)}";'
        else:
            yield f'syntax = "{self._syntax}";'
        if file.package:
            yield f"package {file.package};"
        public, weak = set(file.public_dependency), set(file.weak_dependency)
        imports = [
            f"import {'public ' * (at in public)}{'weak ' * (at in weak)}{_quote(name)};"
            for at, name in enumerate(file.dependency)
        ]
        yield from sorted(imports) if self._sorts else imports
        yield from self._statements(file.options, "")
        for message in file.message_type:
            yield ""
            yield from self._message(message, file.package, "")
        for enum in file.enum_type:
            yield ""
            yield from self._enum(enum, "")
        yield from self._extensions(file.extension, file.package, "")
        for service in file.service:
            yield ""
            yield from self._service(service)

    def _message(self, message: Any, scope: str, indent: str) -> Iterator[str]:
        yield f"{indent}message {message.name} {{"
        yield from self._body(message, f"{scope}.{message.name}" if scope else message.name, indent)
        yield f"{indent}}}"

    def _body(self, message: Any, scope: str, outer: str) -> Iterator[str]:
        indent = outer + INDENT
        yield from self._statements(message.options, indent, without=("map_entry",))
        for one in message.reserved_range:
            yield f"{indent}reserved {_range(one.start, one.end - 1)};"
        if message.reserved_name:
            yield f"{indent}reserved {', '.join(_quote(name) for name in message.reserved_name)};"
        entries = {nested.name: nested for nested in message.nested_type}
        groups = {
            field.type_name.rpartition(".")[2]
            for field in (*message.field, *message.extension)
            if field.type == FIELD.TYPE_GROUP
        }
        oneofs: dict[int, list[Any]] = {}
        for field in message.field:
            if field.HasField("oneof_index") and not field.proto3_optional:
                oneofs.setdefault(field.oneof_index, []).append(field)
        for field in message.field:
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield from self._field(field, scope, indent, entries)
            elif (members := oneofs.pop(field.oneof_index, None)) is not None:
                oneof = message.oneof_decl[field.oneof_index]
                yield from self._oneof(oneof, members, scope, indent, entries)
        for one in message.extension_range:
            yield f"{indent}extensions {_range(one.start, one.end - 1)};"
        for nested in message.nested_type:
            if not nested.options.map_entry and nested.name not in groups:
                yield from self._message(nested, scope, indent)
        for enum in message.enum_type:
            yield from self._enum(enum, indent)
        yield from self._extensions(message.extension, scope, indent)

    def _oneof(
        self, oneof: Any, members: list[Any], scope: str, indent: str, entries: dict[str, Any]
    ) -> Iterator[str]:
        yield f"{indent}oneof {oneof.name} {{"
        yield from self._statements(oneof.options, indent + INDENT)
        for field in members:
            yield from self._field(field, scope, indent + INDENT, entries, in_oneof=True)
        yield f"{indent}}}"

    def _field(
        self,
        field: Any,
        scope: str,
        indent: str,
        entries: dict[str, Any],
        *,
        in_oneof: bool = False,
    ) -> Iterator[str]:
        entry = entries.get(field.type_name.rpartition(".")[2]) if field.type_name else None
        options = self._field_options(field)
        if entry is not None and entry.options.map_entry:
            key, value = (self._type(part, scope) for part in entry.field)
            yield f"{indent}map<{key}, {value}> {field.name} = {field.number}{options};"
            return
        label = ""
        is_said = self._syntax == "proto2" or field.proto3_optional
        if not in_oneof and (is_said or field.label == FIELD.LABEL_REPEATED):
            label = f"{LABEL_NAMES[field.label]} "
        if field.type == FIELD.TYPE_GROUP and entry is not None:
            yield f"{indent}{label}group {entry.name} = {field.number}{options} {{"
            yield from self._body(entry, f"{scope}.{entry.name}", indent)
            yield f"{indent}}}"
            return
        yield f"{indent}{label}{self._type(field, scope)} {field.name} = {field.number}{options};"

    def _type(self, field: Any, scope: str) -> str:
        return self._name(field.type_name, scope) if field.type_name else SCALAR_NAMES[field.type]

    def _name(self, absolute: str, scope: str) -> str:
        """Shortest unambiguous name, without the package if possible."""
        full = absolute.removeprefix(".")
        package = self._linked.file.package
        short = full.removeprefix(f"{package}.") if package else full
        for name in (short, full):
            found = self._linked.find(name, scope)
            if found is not None and found.name == full:
                return name
        return absolute

    def _field_options(self, field: Any) -> str:
        written = list(self._options(field.options))
        if field.HasField("default_value"):
            is_text = field.type in (FIELD.TYPE_STRING, FIELD.TYPE_BYTES)
            value = _quote(field.default_value) if is_text else field.default_value
            written.insert(0, f"default = {value}")
        if field.HasField("json_name") and field.json_name != _json_name(field.name):
            written.append(f"json_name = {_quote(field.json_name)}")
        return _bracketed(sorted(written) if self._sorts else written)

    def _enum(self, enum: Any, indent: str) -> Iterator[str]:
        yield f"{indent}enum {enum.name} {{"
        inner = indent + INDENT
        yield from self._statements(enum.options, inner)
        for one in enum.reserved_range:
            yield f"{inner}reserved {_range(one.start, one.end, 2**31 - 1)};"
        if enum.reserved_name:
            yield f"{inner}reserved {', '.join(_quote(name) for name in enum.reserved_name)};"
        for value in enum.value:
            options = _bracketed(list(self._options(value.options)))
            yield f"{inner}{value.name} = {value.number}{options};"
        yield f"{indent}}}"

    def _extensions(self, extensions: Any, scope: str, indent: str) -> Iterator[str]:
        for field in extensions:
            yield f"{indent}extend {self._name(field.extendee, scope)} {{"
            yield from self._field(field, scope, indent + INDENT, {})
            yield f"{indent}}}"

    def _service(self, service: Any) -> Iterator[str]:
        scope = self._linked.file.package
        yield f"service {service.name} {{"
        yield from self._statements(service.options, INDENT)
        for method in service.method:
            taken = f"{'stream ' * method.client_streaming}{self._name(method.input_type, scope)}"
            given = f"{'stream ' * method.server_streaming}{self._name(method.output_type, scope)}"
            head = f"{INDENT}rpc {method.name} ({taken}) returns ({given})"
            options = list(self._statements(method.options, INDENT * 2))
            if not options:
                yield f"{head};"
                continue
            yield f"{head} {{"
            yield from options
            yield f"{INDENT}}}"
        yield "}"

    def _statements(self, options: Any, indent: str, without: Iterable[str] = ()) -> Iterator[str]:
        written = [one for one in self._options(options) if one.split(" ")[0] not in without]
        for one in sorted(written) if self._sorts else written:
            yield f"{indent}option {one};"

    def _options(self, options: Any) -> Iterator[str]:
        for known, value in options.ListFields():
            if known.is_extension or known.name == "uninterpreted_option" or known.is_repeated:
                continue
            if known.message_type is not None:
                continue
            yield f"{known.name} = {_option_value(known, value)}"
        for kept in options.uninterpreted_option:
            name = ".".join(
                f"({part.name_part})" if part.is_extension else part.name_part for part in kept.name
            )
            yield f"{name} = {_kept_value(kept)}"


def _option_value(known: Any, value: Any) -> str:
    if known.type == FIELD.TYPE_BOOL:
        return "true" if value else "false"
    if known.type == FIELD.TYPE_ENUM:
        named = known.enum_type.values_by_number.get(value)
        return named.name if named is not None else str(value)
    return _quote(value) if isinstance(value, str) else str(value)


def _kept_value(kept: Any) -> str:
    if kept.HasField("aggregate_value"):
        return f"{{ {kept.aggregate_value} }}"
    if kept.HasField("string_value"):
        return _quote(kept.string_value.decode("utf-8", "backslashreplace"))
    for attribute in ("identifier_value", "positive_int_value", "negative_int_value"):
        if kept.HasField(attribute):
            return str(getattr(kept, attribute))
    return repr(kept.double_value)


def _bracketed(options: list[str]) -> str:
    return f" [{', '.join(options)}]" if options else ""


def _range(start: int, end: int, high: int = 2**29 - 1) -> str:
    if start == end:
        return str(start)
    return f"{start} to {'max' if end >= high else end}"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)
