"""Generator of the source of a message version's writer.

A writer appends parts to a list: runs of fixed-width fields as one `struct.pack`, into which the
length prefix of the value that follows is folded, then that value's own buffer, uncopied. Records
pass through unchanged, so a fetch response is a few small parts around large ones.

Invariants of the generated source:
- A tagged field is written only when it differs from its default, in the order of the tags.
- A value that does not fit its kind raises (`struct.error`, `AttributeError`, `TypeError`): that
  is our bug, never the peer's, so it is not wrapped.

`framing` joins the parts and adds the length prefix. The counterpart is `reader_source`.
"""

import struct
from typing import Any, Final

from penstock.base.ports import Buffer
from penstock.wire.schema import FIXED, Field, wire_of

SMALL: Final = tuple(bytes([value]) for value in range(128))
"""Precomputed varints of one byte."""


def write_uvarint(value: int) -> bytes:
    """Encodes an unsigned varint; negative values are our bug."""
    assert 0 <= value <= 0x7FFFFFFF, value
    if value < 128:
        return SMALL[value]
    if value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 1 << 21:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def count_bytes(value: "Buffer | list[Buffer]") -> int:
    """Size of a records field, which may consist of several buffers."""
    return sum(map(len, value)) if isinstance(value, list) else len(value)


class WriterText:
    """Source of one writer, with the names that it uses."""

    def __init__(self, declared: type[Any], version: int, *, in_steps: bool = False) -> None:
        """Generates the source; `in_steps` makes it a generator, with a yield per list element."""
        self.version = version
        self._in_steps = in_steps
        self.flexible = wire_of(declared).is_flexible(version)
        self.names: dict[str, Any] = {
            "SMALL": SMALL,
            "write_uvarint": write_uvarint,
            "count_bytes": count_bytes,
            "pack": struct.pack,
        }
        self._lines: list[str] = []
        self._depth = 1
        self._locals = 0
        self._push = "push"
        # Fixed-width values not yet written: struct format characters and expressions ("" for a
        # constant zero byte, which is `x` to struct and takes no argument).
        self._run: list[tuple[str, str]] = []

        self._struct(declared, "m")
        self._flush()
        head = ["def write(m, parts):", "    push = parts.append"]
        end = ["    yield"] if in_steps else []
        self.text = "\n".join([*head, *self._lines, *end, "    return None", ""])

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def _local(self, prefix: str) -> str:
        self._locals += 1
        return f"{prefix}{self._locals}"

    def _packing(self, extra: str = "") -> str:
        """Expression that packs the pending run, and an `extra` byte after it if given."""
        code = "".join(fmt for fmt, _ in self._run) + ("B" if extra else "")
        if not code.strip("x"):
            return repr(bytes(len(code)))
        if code == "B":
            return f"SMALL[{extra or self._run[0][1]}]"
        values = [value for _, value in self._run if value]
        if extra:
            values.append(extra)
        name = f"pack_{code.replace('?', 'o')}"
        self.names[name] = struct.Struct(">" + code).pack
        return f"{name}({', '.join(values)})"

    def _flush(self) -> None:
        if self._run:
            self._line(f"{self._push}({self._packing()})")
            self._run.clear()

    def _length(self, legacy_format: str) -> None:
        """Writes the length prefix `n`, in the same call as the pending run if it is short."""
        if not self.flexible:
            self._run.append((legacy_format, "n"))
            self._flush()
        elif not self._run:
            self._line(f"{self._push}(SMALL[n] if n < 128 else write_uvarint(n))")
        else:
            self._line("if n < 128:")
            self._line(f"    {self._push}({self._packing('n')})")
            self._line("else:")
            self._line(f"    {self._push}({self._packing()})")
            self._line(f"    {self._push}(write_uvarint(n))")
            self._run.clear()

    def _struct(self, declared: type[Any], source: str) -> None:
        tagged = []
        for field in wire_of(declared).fields:
            if not field.is_in(self.version):
                continue
            if not field.is_tagged(self.version):
                self._value(field, f"{source}.{field.name}")
            elif self.flexible:
                tagged.append(field)
        if self.flexible:
            self._tags(sorted(tagged, key=lambda field: field.tag or 0), source)

    def _value(self, field: Field, source: str) -> None:
        """Writes one value as it stands in the untagged order."""
        if field.kind in FIXED:
            self._run.append((FIXED[field.kind][0], source))
        elif field.kind == "nested":
            self._nested(field, source)
        elif field.kind == "array":
            self._array(field, source)
        else:
            self._bytes(field, source)

    def _bytes(self, field: Field, source: str) -> None:
        value = self._local("b")
        null, extra = ("0", " + 1") if self.flexible else ("-1", "")
        encode = ".encode()" if field.kind == "string" else ""
        count = f"len({value})"
        if field.kind == "records":
            count = f"(len({value}) if type({value}) is not list else count_bytes({value}))"
        if field.is_nullable(self.version):
            self._line(f"{value} = {source}")
            self._line(f"if {value} is None:")
            self._line(f"    n = {null}")
            self._line("else:")
            if encode:
                self._line(f"    {value} = {value}{encode}")
            self._line(f"    n = {count}{extra}")
        else:
            self._line(f"{value} = {source}{encode}")
            self._line(f"n = {count}{extra}")
        self._length("h" if field.kind == "string" else "i")
        # Nothing follows a null or an empty value.
        self._line("if n > 1:" if self.flexible else "if n > 0:")
        if field.kind == "records":
            self._line(f"    if type({value}) is list:")
            self._line(f"        for part in {value}:")
            self._line(f"            {self._push}(part)")
            self._line("    else:")
            self._line(f"        {self._push}({value})")
        else:
            self._line(f"    {self._push}({value})")

    def _nested(self, field: Field, source: str) -> None:
        assert isinstance(field.of, type)
        value = self._local("s")
        self._line(f"{value} = {source}")
        if not field.is_nullable(self.version):
            self._struct(field.of, value)
            return
        # KIP-893: one byte before the struct; negative means null.
        self._run.append(("b", f"-1 if {value} is None else 1"))
        self._flush()
        self._line(f"if {value} is not None:")
        self._depth += 1
        self._struct(field.of, value)
        self._flush()
        self._depth -= 1

    def _array(self, field: Field, source: str) -> None:
        value = self._local("a")
        null, extra = ("0", " + 1") if self.flexible else ("-1", "")
        self._line(f"{value} = {source}")
        if field.is_nullable(self.version):
            self._line(f"n = {null} if {value} is None else len({value}){extra}")
        else:
            self._line(f"n = len({value}){extra}")
        self._length("i")
        self._line(f"if {value}:")
        self._depth += 1
        if isinstance(field.of, Field) and field.of.kind in FIXED:
            code, _ = FIXED[field.of.kind]
            if code == "16s":
                self._line(f"{self._push}(b''.join({value}))")
            else:
                self._line(f'{self._push}(pack(f">{{len({value})}}{code}", *{value}))')
        else:
            element = self._local("e")
            self._line(f"for {element} in {value}:")
            self._depth += 1
            if isinstance(field.of, Field):
                self._value(field.of, element)
            else:
                assert field.of is not None
                self._struct(field.of, element)
            self._flush()
            if self._in_steps:
                self._line("yield")
            self._depth -= 1
        self._depth -= 1

    def _tags(self, tagged: list[Field], source: str) -> None:
        if not tagged:
            self._run.append(("x", ""))
            return
        conditions = [self._differs(field, f"{source}.{field.name}") for field in tagged]
        # Usually every tagged field has its default: then the section is a zero byte.
        self._line(f"if {' or '.join(conditions)}:")
        self._depth += 1
        self._line(f"t = {' + '.join(f'({condition})' for condition in conditions)}")
        self._line(f"{self._push}({self._packing('t')})")
        for field, condition in zip(tagged, conditions, strict=True):
            self._line(f"if {condition}:")
            self._depth += 1
            self._aside(field, f"{source}.{field.name}")
            self._depth -= 1
        self._depth -= 1
        self._line("else:")
        self._run.append(("x", ""))
        self._line(f"    {self._push}({self._packing()})")
        self._run.clear()

    def _differs(self, field: Field, source: str) -> str:
        """Condition for sending a tagged field, as an expression of type bool."""
        default = field.default
        if default is None:
            return f"{source} is not None"
        if field.kind == "array":
            # A list from the wire never equals the default, a tuple, so compare the length.
            assert default == (), field
            null = f"{source} is None or " if field.is_nullable(self.version) else ""
            return f"({null}len({source}) > 0)"
        assert isinstance(default, bool | int | float | str | bytes), field
        return f"{source} != {default!r}"

    def _aside(self, field: Field, source: str) -> None:
        """Writes a tag, the size of its value, and the value, which goes into a separate buffer
        first to find its size."""
        outer, outer_run = self._push, self._run
        aside = self._local("aside")
        self._line(f"{aside} = []")
        self._push, self._run = f"{aside}.append", []
        self._value(field, source)
        self._flush()
        self._push, self._run = outer, outer_run
        self._line(f"{aside} = b''.join({aside})")
        self._line(f"{outer}(write_uvarint({field.tag}) + write_uvarint(len({aside})) + {aside})")
