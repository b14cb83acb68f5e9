"""Options in a .proto text: `option name = value;` and `[name = value, ...]`.

Options with a field in the descriptor are set there; others are kept as written.
"""

from typing import Any

from google.protobuf import descriptor_pb2 as pb

from penstock.state.registry.protobuf.token_reader import Words

INT_TYPES = frozenset(
    getattr(pb.FieldDescriptorProto, f"TYPE_{name}")
    for name in ("INT32", "INT64", "UINT32", "UINT64", "SINT32", "SINT64", "FIXED32", "FIXED64")
)


class OptionReader:
    """Parser of options into the `options` of descriptors."""

    def __init__(self, words: Words) -> None:
        self._words = words

    def read_statement(self, options: Any) -> None:
        """Parses a statement after the keyword `option`."""
        self._option(options, None)
        self._words.expect(";")

    def read_list(self, options: Any, field: Any) -> None:
        """Parses an optional list in brackets; it may set the `field`'s default and JSON name."""
        words = self._words
        if not words.take_if("["):
            return
        while True:
            self._option(options, field)
            if not words.take_if(","):
                break
        words.expect("]")

    def skip_list(self) -> None:
        self.read_list(pb.ExtensionRangeOptions(), None)

    def _option(self, options: Any, field: Any) -> None:
        words = self._words
        parts = [self._name_part()]
        while words.take_if("."):
            parts.append(self._name_part())
        words.expect("=")
        name, is_extension = parts[0]
        if len(parts) == 1 and not is_extension:
            if field is not None and name == "json_name":
                field.json_name = words.text()
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
        words = self._words
        if words.take_if("("):
            name = words.full_name(absolute=True)
            words.expect(")")
            return name, True
        return words.name(), False

    def _set(self, options: Any, known: Any) -> None:
        words = self._words
        kinds = pb.FieldDescriptorProto
        if known.is_repeated:
            raise words.wrong(f"option {known.name} cannot be set this way")
        if known.type == kinds.TYPE_BOOL:
            value = words.name()
            if value not in ("true", "false"):
                raise words.wrong(f"option {known.name} must be true or false")
            setattr(options, known.name, value == "true")
        elif known.type == kinds.TYPE_STRING:
            setattr(options, known.name, words.text())
        elif known.type == kinds.TYPE_ENUM:
            chosen = known.enum_type.values_by_name.get(words.name())
            if chosen is None:
                raise words.wrong(f"invalid value of option {known.name}")
            setattr(options, known.name, chosen.number)
        else:
            raise words.wrong(f"option {known.name} cannot be set this way")

    def _default(self) -> str:
        words = self._words
        if words.kind() == "text":
            raw = words.quoted()
            try:
                return raw.decode()
            except UnicodeDecodeError:
                return raw.decode("latin-1").encode("unicode_escape").decode()
        sign = "-" if words.take_if("-") else ""
        if words.kind() in ("name", "number"):
            return sign + words.skip().text
        raise words.wrong("expected a default value")

    def _keep_value(self, kept: Any) -> None:
        words = self._words
        if words.peek() in ("{", "<"):
            kept.aggregate_value = self._aggregate()
        elif words.kind() == "text":
            kept.string_value = words.quoted()
        elif words.kind() == "name":
            kept.identifier_value = words.skip().text
        else:
            sign = "-" if words.take_if("-") else ""
            if words.kind() == "name":
                kept.identifier_value = sign + words.skip().text
                return
            written = words.skip().text
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
            raise self._words.wrong("expected a value") from None

    def _aggregate(self) -> str:
        """Tokens between braces, joined by blanks."""
        words = self._words
        words.skip()
        parts: list[str] = []
        depth = 1
        while True:
            word = words.skip()
            depth += (word.text in "{<") - (word.text in "}>")
            if not depth:
                return " ".join(parts)
            parts.append(word.text)
