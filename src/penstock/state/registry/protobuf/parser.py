"""Parser of .proto texts: from text to file descriptor (proto2, proto3, editions).

Type names are kept as written; `linker` resolves them. Options known to descriptors are set; other
ones, such as Confluent's and custom ones, are kept as written.

Options in a .proto text: `option name = value;` and `[name = value, ...]`. Options with a field
in the descriptor are set there; others are kept as written.
"""

from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb

from penstock.state.registry.limits import check_depth
from penstock.state.registry.protobuf.tokens import TokenReader, tokenize


class OptionReader:
    """Parser of options into the `options` of descriptors."""

    def __init__(self, tokens: TokenReader) -> None:
        self._tokens = tokens

    def read_statement(self, options: Any) -> None:
        """Parses a statement after the keyword `option`."""
        self._option(options, None)
        self._tokens.expect(";")

    def read_list(self, options: Any, field: Any) -> None:
        """Parses an optional list in brackets; it may set the `field`'s default and JSON name."""
        tokens = self._tokens
        if not tokens.take_if("["):
            return
        while True:
            self._option(options, field)
            if not tokens.take_if(","):
                break
        tokens.expect("]")

    def skip_list(self) -> None:
        self.read_list(pb.ExtensionRangeOptions(), None)

    def _option(self, options: Any, field: Any) -> None:
        tokens = self._tokens
        parts = [self._name_part()]
        while tokens.take_if("."):
            parts.append(self._name_part())
        tokens.expect("=")
        name, is_extension = parts[0]
        if len(parts) == 1 and not is_extension:
            if field is not None and name == "json_name":
                field.json_name = tokens.text()
                return
            if field is not None and name == "default":
                field.default_value = self._default()
                return
            known = options.DESCRIPTOR.fields_by_name.get(name)
            if known is not None and not known.message_type:
                self._set(options, known)
                return
        kept = options.uninterpreted_option.add()
        for part, is_own in parts:
            kept.name.add(name_part=part, is_extension=is_own)
        self._keep_value(kept)

    def _name_part(self) -> tuple[str, bool]:
        tokens = self._tokens
        if tokens.take_if("("):
            name = tokens.full_name(absolute=True)
            tokens.expect(")")
            return name, True
        return tokens.name(), False

    def _set(self, options: Any, known: Any) -> None:
        tokens = self._tokens
        kinds = pb.FieldDescriptorProto
        if known.is_repeated:
            raise tokens.wrong(f"option {known.name} cannot be set this way")
        if known.type == kinds.TYPE_BOOL:
            value = tokens.name()
            if value not in ("true", "false"):
                raise tokens.wrong(f"option {known.name} must be true or false")
            setattr(options, known.name, value == "true")
        elif known.type == kinds.TYPE_STRING:
            setattr(options, known.name, tokens.text())
        elif known.type == kinds.TYPE_ENUM:
            chosen = known.enum_type.values_by_name.get(tokens.name())
            if chosen is None:
                raise tokens.wrong(f"invalid value of option {known.name}")
            setattr(options, known.name, chosen.number)
        else:
            raise tokens.wrong(f"option {known.name} cannot be set this way")

    def _default(self) -> str:
        tokens = self._tokens
        if tokens.kind() == "text":
            raw = tokens.quoted()
            try:
                return raw.decode()
            except UnicodeDecodeError:
                return raw.decode("latin-1").encode("unicode_escape").decode()
        sign = "-" if tokens.take_if("-") else ""
        if tokens.kind() in ("name", "number"):
            return sign + tokens.skip().text
        raise tokens.wrong("expected a default value")

    def _keep_value(self, kept: Any) -> None:
        tokens = self._tokens
        if tokens.peek() in ("{", "<"):
            kept.aggregate_value = self._aggregate()
        elif tokens.kind() == "text":
            kept.string_value = tokens.quoted()
        elif tokens.kind() == "name":
            kept.identifier_value = tokens.skip().text
        else:
            sign = "-" if tokens.take_if("-") else ""
            if tokens.kind() == "name":
                kept.identifier_value = sign + tokens.skip().text
                return
            written = tokens.skip().text
            try:
                number = int(written, 0)
            except ValueError:
                self._keep_float(kept, sign + written)
                return
            if sign:
                kept.negative_int_value = max(-number, -(2**63))
            else:
                kept.positive_int_value = min(number, 2**64 - 1)

    def _keep_float(self, kept: Any, written: str) -> None:
        try:
            kept.double_value = float(written.rstrip("fF"))
        except ValueError:
            raise self._tokens.wrong("expected a value") from None

    def _aggregate(self) -> str:
        """Tokens between braces, joined by blanks."""
        tokens = self._tokens
        tokens.skip()
        parts: list[str] = []
        depth = 1
        while True:
            token = tokens.skip()
            depth += (token.text in "{<") - (token.text in "}>")
            if not depth:
                return " ".join(parts)
            parts.append(token.text)


FIELD: Final = pb.FieldDescriptorProto
SCALARS: Final = {
    name: getattr(FIELD, f"TYPE_{name.upper()}")
    for name in (
        "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string",
        "bytes", "uint32", "sfixed32", "sfixed64", "sint32", "sint64",
    )
}  # fmt: skip
LABELS: Final = {
    "optional": FIELD.LABEL_OPTIONAL,
    "required": FIELD.LABEL_REQUIRED,
    "repeated": FIELD.LABEL_REPEATED,
}
NUMBER_MAX: Final = 2**29 - 1
EDITIONS: Final = {"2023": 1000, "2024": 1001}


def parse_proto(text: str) -> Any:
    """Parses a text into a file descriptor without a name."""
    return _Parser(text).file()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = TokenReader(tokenize(text))
        self._options = OptionReader(self._tokens)
        self._file = pb.FileDescriptorProto()
        self._is_proto3 = False

    def file(self) -> Any:
        tokens, file = self._tokens, self._file
        if tokens.take_if("syntax"):
            tokens.expect("=")
            file.syntax = tokens.text()
            tokens.expect(";")
            if file.syntax not in ("proto2", "proto3"):
                raise tokens.wrong(f"unknown syntax {file.syntax[:40]!r}: use proto2 or proto3")
        elif tokens.take_if("edition"):
            tokens.expect("=")
            edition = tokens.text()
            tokens.expect(";")
            if edition not in EDITIONS:
                raise tokens.wrong(f"unknown edition {edition[:40]!r}: use {' or '.join(EDITIONS)}")
            file.syntax, file.edition = "editions", EDITIONS[edition]
        self._is_proto3 = file.syntax == "proto3"
        if file.syntax == "proto2":
            file.ClearField("syntax")
        while not tokens.is_done:
            self._statement()
        return file

    def _statement(self) -> None:
        tokens, file = self._tokens, self._file
        keyword = tokens.name()
        if keyword == "import":
            is_public, is_weak = tokens.take_if("public"), tokens.take_if("weak")
            if is_public:
                file.public_dependency.append(len(file.dependency))
            if is_weak:
                file.weak_dependency.append(len(file.dependency))
            file.dependency.append(tokens.text())
            tokens.expect(";")
        elif keyword == "package":
            if file.package:
                raise tokens.wrong("the package is declared twice")
            file.package = tokens.full_name()
            tokens.expect(";")
        elif keyword == "option":
            self._options.read_statement(file.options)
        elif keyword == "message":
            self._message(file.message_type.add(), 0)
        elif keyword == "enum":
            self._enum(file.enum_type.add())
        elif keyword == "extend":
            self._extend(file.extension, file.message_type, 0)
        elif keyword == "service":
            self._service(file.service.add())
        else:
            raise tokens.wrong(f"unexpected {keyword[:40]!r}")
        while tokens.take_if(";"):
            pass

    # -- messages ---------------------------------------------------------------------------

    def _message(self, message: Any, depth: int) -> None:
        message.name = self._tokens.name()
        self._message_body(message, depth)

    def _message_body(self, message: Any, depth: int) -> None:
        check_depth(depth)
        tokens = self._tokens
        tokens.expect("{")
        while not tokens.take_if("}"):
            self._member(message, depth)
        self._name_synthetic_oneofs(message)

    def _member(self, message: Any, depth: int) -> None:
        tokens = self._tokens
        if tokens.take_if(";"):
            return
        keyword = tokens.peek()
        # A type may be named like one of these keywords; a field name and number follow then.
        if keyword == "message" and tokens.peek(2) == "{":
            tokens.skip()
            self._message(message.nested_type.add(), depth + 1)
        elif keyword == "enum" and tokens.peek(2) == "{":
            tokens.skip()
            self._enum(message.enum_type.add())
        elif keyword == "oneof" and tokens.peek(2) == "{":
            tokens.skip()
            self._oneof(message, depth)
        elif keyword == "extend" and tokens.peek(2) != "=":
            tokens.skip()
            self._extend(message.extension, message.nested_type, depth)
        elif keyword == "option":
            tokens.skip()
            self._options.read_statement(message.options)
        elif keyword == "reserved":
            tokens.skip()
            self._reserved(message)
        elif keyword == "extensions":
            tokens.skip()
            self._extension_ranges(message)
        elif keyword == "map" and tokens.peek(1) == "<":
            self._map(message)
        else:
            self._field(message.field.add(), message.nested_type, depth)

    def _field(self, field: Any, nested: Any, depth: int, *, in_oneof: bool = False) -> None:
        tokens = self._tokens
        label = tokens.peek()
        field.label = FIELD.LABEL_OPTIONAL
        if label in LABELS and tokens.peek(1) not in ("=", "."):
            if in_oneof:
                raise tokens.wrong("a field of a oneof must not have a label")
            tokens.skip()
            field.label = LABELS[label]
            field.proto3_optional = label == "optional" and self._is_proto3
            if not field.proto3_optional:
                field.ClearField("proto3_optional")
        elif not in_oneof and not self._is_proto3 and self._file.syntax != "editions":
            raise tokens.wrong("a proto2 field must be optional, required or repeated")
        if tokens.peek() == "group" and tokens.peek(2) == "=":
            self._group(field, nested, depth)
            return
        self._type(field)
        field.name = tokens.name()
        tokens.expect("=")
        field.number = self._number()
        self._options.read_list(field.options, field)
        tokens.expect(";")

    def _type(self, field: Any) -> None:
        written = self._tokens.full_name(absolute=True)
        if written in SCALARS:
            field.type = SCALARS[written]
        else:
            field.type_name = written

    def _group(self, field: Any, nested: Any, depth: int) -> None:
        tokens = self._tokens
        tokens.skip()
        name = tokens.name()
        tokens.expect("=")
        field.number = self._number()
        field.name, field.type, field.type_name = name.lower(), FIELD.TYPE_GROUP, name
        self._options.read_list(field.options, field)
        group = nested.add()
        group.name = name
        self._message_body(group, depth + 1)

    def _map(self, message: Any) -> None:
        """Parses a map field: it becomes a repeated message, as in protoc."""
        tokens = self._tokens
        tokens.skip()
        tokens.expect("<")
        entry = pb.DescriptorProto()
        entry.options.map_entry = True
        for number, name in ((1, "key"), (2, "value")):
            part = entry.field.add(name=name, number=number, label=FIELD.LABEL_OPTIONAL)
            self._type(part)
            tokens.expect("," if number == 1 else ">")
        field = message.field.add(label=FIELD.LABEL_REPEATED, name=tokens.name())
        tokens.expect("=")
        field.number = self._number()
        self._options.read_list(field.options, field)
        tokens.expect(";")
        parts = field.name.split("_")
        entry.name = "".join(part[:1].upper() + part[1:] for part in parts) + "Entry"
        field.type_name = entry.name
        message.nested_type.append(entry)

    def _oneof(self, message: Any, depth: int) -> None:
        tokens = self._tokens
        oneof = message.oneof_decl.add(name=tokens.name())
        index = len(message.oneof_decl) - 1
        tokens.expect("{")
        while not tokens.take_if("}"):
            if tokens.take_if(";"):
                continue
            if tokens.peek() == "option":
                tokens.skip()
                self._options.read_statement(oneof.options)
                continue
            field = message.field.add()
            field.oneof_index = index
            self._field(field, message.nested_type, depth, in_oneof=True)

    def _name_synthetic_oneofs(self, message: Any) -> None:
        """Adds a one-field oneof for each proto3 `optional`, after all other oneofs."""
        taken = {oneof.name for oneof in message.oneof_decl}
        taken |= {field.name for field in message.field}
        for field in message.field:
            if not field.proto3_optional:
                continue
            name = f"_{field.name}"
            while name in taken:
                name = f"X{name}"
            taken.add(name)
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=name)

    def _extend(self, extensions: Any, nested: Any, depth: int) -> None:
        tokens = self._tokens
        extendee = tokens.full_name(absolute=True)
        tokens.expect("{")
        while not tokens.take_if("}"):
            if tokens.take_if(";"):
                continue
            field = extensions.add()
            self._field(field, nested, depth)
            field.extendee = extendee

    def _reserved(self, message: Any) -> None:
        tokens = self._tokens
        while True:
            if tokens.kind() == "text":
                message.reserved_name.append(tokens.text())
            elif tokens.kind() == "name":
                message.reserved_name.append(tokens.name())
            else:
                start, end = self._range()
                message.reserved_range.add(start=start, end=end + 1)
            if not tokens.take_if(","):
                break
        tokens.expect(";")

    def _extension_ranges(self, message: Any) -> None:
        tokens = self._tokens
        while True:
            start, end = self._range()
            message.extension_range.add(start=start, end=end + 1)
            if not tokens.take_if(","):
                break
        self._options.skip_list()
        tokens.expect(";")

    def _range(self, high: int = NUMBER_MAX) -> tuple[int, int]:
        tokens = self._tokens
        start = tokens.integer()
        if not tokens.take_if("to"):
            return start, start
        return start, high if tokens.take_if("max") else tokens.integer()

    def _number(self) -> int:
        number = self._tokens.integer()
        if not 1 <= number <= NUMBER_MAX:
            raise self._tokens.wrong(
                f"invalid field number {number}: must be from 1 to {NUMBER_MAX}"
            )
        return number

    # -- enums and services -----------------------------------------------------------------

    def _enum(self, enum: Any) -> None:
        tokens = self._tokens
        enum.name = tokens.name()
        tokens.expect("{")
        while not tokens.take_if("}"):
            if tokens.take_if(";"):
                continue
            if tokens.peek() == "option" and tokens.peek(1) != "=":
                tokens.skip()
                self._options.read_statement(enum.options)
            elif tokens.peek() == "reserved" and tokens.peek(1) != "=":
                tokens.skip()
                self._reserved_values(enum)
            else:
                value = enum.value.add(name=tokens.name())
                tokens.expect("=")
                value.number = self._enum_number()
                self._options.read_list(value.options, None)
                tokens.expect(";")

    def _reserved_values(self, enum: Any) -> None:
        tokens = self._tokens
        while True:
            if tokens.kind() == "text":
                enum.reserved_name.append(tokens.text())
            elif tokens.kind() == "name":
                enum.reserved_name.append(tokens.name())
            else:
                start, end = self._range(2**31 - 1)
                enum.reserved_range.add(start=start, end=end)
            if not tokens.take_if(","):
                break
        tokens.expect(";")

    def _enum_number(self) -> int:
        number = self._tokens.integer()
        if not -(2**31) <= number < 2**31:
            raise self._tokens.wrong(f"enum value {number} does not fit in 32 bits")
        return number

    def _service(self, service: Any) -> None:
        tokens = self._tokens
        service.name = tokens.name()
        tokens.expect("{")
        while not tokens.take_if("}"):
            if tokens.take_if(";"):
                continue
            keyword = tokens.name()
            if keyword == "option":
                self._options.read_statement(service.options)
                continue
            if keyword != "rpc":
                raise tokens.wrong(
                    f"unexpected {keyword[:40]!r}: a service contains rpc and option"
                )
            method = service.method.add(name=tokens.name())
            tokens.expect("(")
            method.client_streaming = tokens.take_if("stream")
            method.input_type = tokens.full_name(absolute=True)
            tokens.expect(")")
            tokens.expect("returns")
            tokens.expect("(")
            method.server_streaming = tokens.take_if("stream")
            method.output_type = tokens.full_name(absolute=True)
            tokens.expect(")")
            if tokens.take_if(";"):
                continue
            tokens.expect("{")
            while not tokens.take_if("}"):
                if not tokens.take_if(";"):
                    tokens.expect("option")
                    self._options.read_statement(method.options)
