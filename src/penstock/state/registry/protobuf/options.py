"""Options in a .proto text: `option name = value;` and `[name = value, ...]`.

Options with a field in the descriptor are set there; others are kept as written.
"""

from typing import Any

from google.protobuf import descriptor_pb2 as pb

from penstock.state.registry.protobuf.tokens import TokenReader

INT_TYPES = frozenset(
    getattr(pb.FieldDescriptorProto, f"TYPE_{name}")
    for name in ("INT32", "INT64", "UINT32", "UINT64", "SINT32", "SINT64", "FIXED32", "FIXED64")
)


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
