"""Parser of .proto texts: from text to file descriptor (proto2, proto3, editions).

Type names are kept as written; `linker` resolves them. Options known to descriptors are set; other
ones, such as Confluent's and custom ones, are kept as written.
"""

from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb

from penstock.state.registry.limits import check_depth
from penstock.state.registry.protobuf.options import OptionReader
from penstock.state.registry.protobuf.token_reader import Words
from penstock.state.registry.protobuf.tokenizer import split_words

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
        self._words = Words(split_words(text))
        self._options = OptionReader(self._words)
        self._file = pb.FileDescriptorProto()
        self._is_proto3 = False

    def file(self) -> Any:
        words, file = self._words, self._file
        if words.take_if("syntax"):
            words.expect("=")
            file.syntax = words.text()
            words.expect(";")
            if file.syntax not in ("proto2", "proto3"):
                raise words.wrong(f"unknown syntax {file.syntax[:40]!r}: use proto2 or proto3")
        elif words.take_if("edition"):
            words.expect("=")
            edition = words.text()
            words.expect(";")
            if edition not in EDITIONS:
                raise words.wrong(f"unknown edition {edition[:40]!r}: use {' or '.join(EDITIONS)}")
            file.syntax, file.edition = "editions", EDITIONS[edition]
        self._is_proto3 = file.syntax == "proto3"
        if file.syntax == "proto2":
            file.ClearField("syntax")
        while not words.is_done:
            self._statement()
        return file

    def _statement(self) -> None:
        words, file = self._words, self._file
        keyword = words.name()
        if keyword == "import":
            is_public, is_weak = words.take_if("public"), words.take_if("weak")
            if is_public:
                file.public_dependency.append(len(file.dependency))
            if is_weak:
                file.weak_dependency.append(len(file.dependency))
            file.dependency.append(words.text())
            words.expect(";")
        elif keyword == "package":
            if file.package:
                raise words.wrong("the package is declared twice")
            file.package = words.full_name()
            words.expect(";")
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
            raise words.wrong(f"unexpected {keyword[:40]!r}")
        while words.take_if(";"):
            pass

    # -- messages ---------------------------------------------------------------------------

    def _message(self, message: Any, depth: int) -> None:
        message.name = self._words.name()
        self._message_body(message, depth)

    def _message_body(self, message: Any, depth: int) -> None:
        check_depth(depth)
        words = self._words
        words.expect("{")
        while not words.take_if("}"):
            self._member(message, depth)
        self._name_synthetic_oneofs(message)

    def _member(self, message: Any, depth: int) -> None:
        words = self._words
        if words.take_if(";"):
            return
        keyword = words.peek()
        # A type may be named like one of these keywords; a field name and number follow then.
        if keyword == "message" and words.peek(2) == "{":
            words.skip()
            self._message(message.nested_type.add(), depth + 1)
        elif keyword == "enum" and words.peek(2) == "{":
            words.skip()
            self._enum(message.enum_type.add())
        elif keyword == "oneof" and words.peek(2) == "{":
            words.skip()
            self._oneof(message, depth)
        elif keyword == "extend" and words.peek(2) != "=":
            words.skip()
            self._extend(message.extension, message.nested_type, depth)
        elif keyword == "option":
            words.skip()
            self._options.read_statement(message.options)
        elif keyword == "reserved":
            words.skip()
            self._reserved(message)
        elif keyword == "extensions":
            words.skip()
            self._extension_ranges(message)
        elif keyword == "map" and words.peek(1) == "<":
            self._map(message)
        else:
            self._field(message.field.add(), message.nested_type, depth)

    def _field(self, field: Any, nested: Any, depth: int, *, in_oneof: bool = False) -> None:
        words = self._words
        label = words.peek()
        field.label = FIELD.LABEL_OPTIONAL
        if label in LABELS and words.peek(1) not in ("=", "."):
            if in_oneof:
                raise words.wrong("a field of a oneof must not have a label")
            words.skip()
            field.label = LABELS[label]
            field.proto3_optional = label == "optional" and self._is_proto3
            if not field.proto3_optional:
                field.ClearField("proto3_optional")
        elif not in_oneof and not self._is_proto3 and self._file.syntax != "editions":
            raise words.wrong("a proto2 field must be optional, required or repeated")
        if words.peek() == "group" and words.peek(2) == "=":
            self._group(field, nested, depth)
            return
        self._type(field)
        field.name = words.name()
        words.expect("=")
        field.number = self._number()
        self._options.read_list(field.options, field)
        words.expect(";")

    def _type(self, field: Any) -> None:
        written = self._words.full_name(absolute=True)
        if written in SCALARS:
            field.type = SCALARS[written]
        else:
            field.type_name = written

    def _group(self, field: Any, nested: Any, depth: int) -> None:
        words = self._words
        words.skip()
        name = words.name()
        words.expect("=")
        field.number = self._number()
        field.name, field.type, field.type_name = name.lower(), FIELD.TYPE_GROUP, name
        self._options.read_list(field.options, field)
        group = nested.add()
        group.name = name
        self._message_body(group, depth + 1)

    def _map(self, message: Any) -> None:
        """Parses a map field: it becomes a repeated message, as in protoc."""
        words = self._words
        words.skip()
        words.expect("<")
        entry = pb.DescriptorProto()
        entry.options.map_entry = True
        for number, name in ((1, "key"), (2, "value")):
            part = entry.field.add(name=name, number=number, label=FIELD.LABEL_OPTIONAL)
            self._type(part)
            words.expect("," if number == 1 else ">")
        field = message.field.add(label=FIELD.LABEL_REPEATED, name=words.name())
        words.expect("=")
        field.number = self._number()
        self._options.read_list(field.options, field)
        words.expect(";")
        parts = field.name.split("_")
        entry.name = "".join(part[:1].upper() + part[1:] for part in parts) + "Entry"
        field.type_name = entry.name
        message.nested_type.append(entry)

    def _oneof(self, message: Any, depth: int) -> None:
        words = self._words
        oneof = message.oneof_decl.add(name=words.name())
        index = len(message.oneof_decl) - 1
        words.expect("{")
        while not words.take_if("}"):
            if words.take_if(";"):
                continue
            if words.peek() == "option":
                words.skip()
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
        words = self._words
        extendee = words.full_name(absolute=True)
        words.expect("{")
        while not words.take_if("}"):
            if words.take_if(";"):
                continue
            field = extensions.add()
            self._field(field, nested, depth)
            field.extendee = extendee

    def _reserved(self, message: Any) -> None:
        words = self._words
        while True:
            if words.kind() == "text":
                message.reserved_name.append(words.text())
            elif words.kind() == "name":
                message.reserved_name.append(words.name())
            else:
                start, end = self._range()
                message.reserved_range.add(start=start, end=end + 1)
            if not words.take_if(","):
                break
        words.expect(";")

    def _extension_ranges(self, message: Any) -> None:
        words = self._words
        while True:
            start, end = self._range()
            message.extension_range.add(start=start, end=end + 1)
            if not words.take_if(","):
                break
        self._options.skip_list()
        words.expect(";")

    def _range(self, high: int = NUMBER_MAX) -> tuple[int, int]:
        words = self._words
        start = words.integer()
        if not words.take_if("to"):
            return start, start
        return start, high if words.take_if("max") else words.integer()

    def _number(self) -> int:
        number = self._words.integer()
        if not 1 <= number <= NUMBER_MAX:
            raise self._words.wrong(
                f"invalid field number {number}: must be from 1 to {NUMBER_MAX}"
            )
        return number

    # -- enums and services -----------------------------------------------------------------

    def _enum(self, enum: Any) -> None:
        words = self._words
        enum.name = words.name()
        words.expect("{")
        while not words.take_if("}"):
            if words.take_if(";"):
                continue
            if words.peek() == "option" and words.peek(1) != "=":
                words.skip()
                self._options.read_statement(enum.options)
            elif words.peek() == "reserved" and words.peek(1) != "=":
                words.skip()
                self._reserved_values(enum)
            else:
                value = enum.value.add(name=words.name())
                words.expect("=")
                value.number = self._enum_number()
                self._options.read_list(value.options, None)
                words.expect(";")

    def _reserved_values(self, enum: Any) -> None:
        words = self._words
        while True:
            if words.kind() == "text":
                enum.reserved_name.append(words.text())
            elif words.kind() == "name":
                enum.reserved_name.append(words.name())
            else:
                start, end = self._range(2**31 - 1)
                enum.reserved_range.add(start=start, end=end)
            if not words.take_if(","):
                break
        words.expect(";")

    def _enum_number(self) -> int:
        number = self._words.integer()
        if not -(2**31) <= number < 2**31:
            raise self._words.wrong(f"enum value {number} does not fit in 32 bits")
        return number

    def _service(self, service: Any) -> None:
        words = self._words
        service.name = words.name()
        words.expect("{")
        while not words.take_if("}"):
            if words.take_if(";"):
                continue
            keyword = words.name()
            if keyword == "option":
                self._options.read_statement(service.options)
                continue
            if keyword != "rpc":
                raise words.wrong(f"unexpected {keyword[:40]!r}: a service contains rpc and option")
            method = service.method.add(name=words.name())
            words.expect("(")
            method.client_streaming = words.take_if("stream")
            method.input_type = words.full_name(absolute=True)
            words.expect(")")
            words.expect("returns")
            words.expect("(")
            method.server_streaming = words.take_if("stream")
            method.output_type = words.full_name(absolute=True)
            words.expect(")")
            if words.take_if(";"):
                continue
            words.expect("{")
            while not words.take_if("}"):
                if not words.take_if(";"):
                    words.expect("option")
                    self._options.read_statement(method.options)
