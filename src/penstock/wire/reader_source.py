"""Generator of the source of a message version's reader.

A reader is straight-line Python. Runs of fixed-width fields become one precompiled `struct` call,
which also unpacks the length prefix of the value that follows. Arrays are plain loops. Objects are
created without their constructor and their slots assigned, which costs half of a constructor call.

Invariants of the generated source:
- `view` ends at `end`, so a read past the end raises by itself (`struct.error`, `IndexError`).
- `p` only grows. A length moves it only after `p <= q <= end` was checked; a count is accepted only
  when that many of the smallest possible elements fit into the remaining bytes.
- Every such exception is raised as `PeerError`; a peer's bytes cannot raise anything else.
- Unknown tags are skipped by their size, known ones must fill theirs exactly.

`codec` compiles, caches and names the source. The counterpart is `writer_source`.
"""

import struct
from typing import Any, Final, NoReturn

from penstock.base.errors import PeerError
from penstock.base.ids import NO_TOPIC_ID
from penstock.wire.schema import FIXED, Field, wire_of

STRING_BYTES_MAX: Final = 32767
"""Kafka's own limit: a legacy string has a 16-bit length, and compact ones keep to it."""
TAGS_MAX: Final = 1_000
"""Maximum number of tagged fields of one struct."""

LENGTH_MAX: Final = 0x7FFFFFFF


def read_uvarint(view: memoryview, position: int, first: int) -> tuple[int, int]:
    """Reads the rest of an unsigned varint whose first byte has the continuation bit set."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > LENGTH_MAX:
                raise PeerError(f"varint {value} is above {LENGTH_MAX}")
            return value, position
    raise PeerError("varint is longer than five bytes")


def read_string_length(view: memoryview, position: int, first: int) -> tuple[int, int]:
    """Like `read_uvarint`, for the length of a compact string (which is encoded plus one)."""
    value, position = read_uvarint(view, position, first)
    if value - 1 > STRING_BYTES_MAX:
        raise PeerError(f"string of {value - 1} bytes is longer than {STRING_BYTES_MAX}")
    return value, position


def skip_tags(view: memoryview, position: int, end: int, count: int) -> int:
    """Skips a section of `count` tagged fields that this version does not have."""
    if count > 127:
        count, position = read_uvarint(view, position, count)
    check_tags(count, end - position)
    for _ in range(count):
        _, position, close = read_tag(view, position, end)
        position = close
    return position


def check_tags(count: int, remaining: int) -> None:
    """Refuses more tagged fields than fit, or than `TAGS_MAX`: each one costs time."""
    if count * 2 > remaining or count > TAGS_MAX:
        raise PeerError(f"{count} tagged fields in {remaining} bytes, at most {TAGS_MAX} allowed")


def read_tag(view: memoryview, position: int, end: int) -> tuple[int, int, int]:
    """Reads one tag; returns it with the start and the end of its value."""
    tag = view[position]
    position += 1
    if tag > 127:
        tag, position = read_uvarint(view, position, tag)
    size = view[position]
    position += 1
    if size > 127:
        size, position = read_uvarint(view, position, size)
    if size > end - position:
        raise PeerError(f"tagged field {tag} of {size} bytes, but {end - position} remain")
    return tag, position, position + size


def refuse_length(name: str, length: int, remaining: int) -> NoReturn:
    raise PeerError(f"{name}: length {length} with {remaining} bytes remaining")


def refuse_tag_size(name: str) -> NoReturn:
    raise PeerError(f"{name}: tagged value does not fill its size")


def size_min(of: "type[Any] | Field", version: int, flexible: bool) -> int:
    """Minimum size of one element; at least one byte, so that a count can be checked."""
    if isinstance(of, Field):
        if of.kind in FIXED:
            return FIXED[of.kind][1]
        if of.kind == "nested":
            assert isinstance(of.of, type)
            return 1 if of.is_nullable(version) else size_min(of.of, version, flexible)
        if flexible:
            return 1
        return 2 if of.kind == "string" else 4
    total = 1 if flexible else 0
    for field in wire_of(of).fields:
        if field.is_in(version) and not field.is_tagged(version):
            total += size_min(field, version, flexible)
    return max(total, 1)


class ReaderText:
    """Source of one reader, with the names that it uses."""

    def __init__(self, declared: type[Any], version: int) -> None:
        self.version = version
        self.flexible = wire_of(declared).is_flexible(version)
        self.names: dict[str, Any] = {
            "NO_TOPIC_ID": NO_TOPIC_ID,
            "PeerError": PeerError,
            "StructError": struct.error,
            "new": object.__new__,
            "read_uvarint": read_uvarint,
            "read_string_length": read_string_length,
            "read_tag": read_tag,
            "skip_tags": skip_tags,
            "check_tags": check_tags,
            "refuse_length": refuse_length,
            "refuse_tag_size": refuse_tag_size,
            "unpack_from": struct.unpack_from,
        }
        self._lines: list[str] = []
        self._depth = 2
        self._loops = 0
        # Fixed-width values not yet read: struct format characters and assignment targets.
        self._run: list[tuple[str, str]] = []

        self._struct(declared, "m")
        self._flush()
        title = f"{declared.__name__} v{version}"
        self.text = "\n".join(
            [
                "def read(view, p, end):",
                "    if len(view) != end:",
                "        view = view[:end]",
                "    try:",
                *self._lines,
                "        return m, p",
                "    except (StructError, IndexError, UnicodeDecodeError) as error:",
                f'        raise PeerError(f"{title}: {{error}}") from error',
                "",
            ]
        )

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def _constant(self, value: object) -> str:
        """Expression for a default, which is always a literal except for the zero uuid."""
        if value is NO_TOPIC_ID:
            return "NO_TOPIC_ID"
        assert value is None or isinstance(value, bool | int | float | str | bytes | tuple), value
        return repr(value)

    def _class(self, declared: type[Any]) -> str:
        self.names[declared.__name__] = declared
        return declared.__name__

    def _flush(self) -> None:
        """Reads the pending run with one call."""
        if not self._run:
            return
        code = "".join(fmt for fmt, _ in self._run)
        targets = ", ".join(target for _, target in self._run)
        if code == "B":
            self._line(f"{targets} = view[p]")
            self._line("p += 1")
        else:
            packing = struct.Struct(">" + code)
            name = f"unpack_{code.replace('?', 'o')}"
            self.names[name] = packing.unpack_from
            self._line(f"{targets}{',' if len(self._run) == 1 else ''} = {name}(view, p)")
            self._line(f"p += {packing.size}")
        self._run.clear()

    def _struct(self, declared: type[Any], target: str) -> None:
        self._line(f"{target} = new({self._class(declared)})")
        tagged = []
        present = []
        for field in wire_of(declared).fields:
            if field.is_in(self.version) and not field.is_tagged(self.version):
                present.append(field)
                continue
            if field.is_in(self.version) and self.flexible:
                tagged.append(field)
            self._line(f"{target}.{field.name} = {self._constant(field.absent())}")
        for field in present:
            self._value(field, f"{target}.{field.name}", field.name)
        if self.flexible:
            self._tags(tagged, target)

    def _value(self, field: Field, target: str, name: str) -> None:
        """Reads one untagged value and assigns it to `target`."""
        if field.kind in FIXED:
            self._run.append((FIXED[field.kind][0], target))
        elif field.kind == "nested":
            self._nested(field, target)
        elif field.kind == "array":
            self._array(field, target, name)
        else:
            self._bytes(field, target, name)

    def _length(self, legacy_format: str, slow: str = "read_uvarint") -> None:
        """Reads a length prefix into `n`; the encoding of null differs by version."""
        self._run.append(("B" if self.flexible else legacy_format, "n"))
        self._flush()
        if self.flexible:
            self._line("if n > 127:")
            self._line(f"    n, p = {slow}(view, p, n)")

    def _bytes(self, field: Field, target: str, name: str) -> None:
        if field.kind == "string":
            self._length("h", "read_string_length")
            # Many are empty: metadata of committed offsets, ids that a client does not have yet.
            value = 'str(view[p:q], "utf-8") if q > p else ""'
        else:
            self._length("i")
            value = "view[p:q]" if field.kind == "records" else "view[p:q].tobytes()"
        null, length = ("0", "n - 1") if self.flexible else ("-1", "n")
        nullable = field.is_nullable(self.version)
        if nullable:
            self._line(f"if n == {null}:")
            self._line(f"    {target} = None")
            self._line("else:")
            self._depth += 1
        self._line(f"q = p + {length}")
        self._line("if not p <= q <= end:")
        self._line(f"    refuse_length({name!r}, q - p, end - p)")
        self._line(f"{target} = {value}")
        self._line("p = q")
        if nullable:
            self._depth -= 1

    def _nested(self, field: Field, target: str) -> None:
        assert isinstance(field.of, type)
        inner = f"s{self._loops}"
        self._loops += 1
        if not field.is_nullable(self.version):
            self._struct(field.of, inner)
            self._line(f"{target} = {inner}")
        else:
            # KIP-893: one byte before the struct; negative means null.
            self._run.append(("b", "n"))
            self._flush()
            self._line("if n < 0:")
            self._line(f"    {target} = None")
            self._line("else:")
            self._depth += 1
            self._struct(field.of, inner)
            self._flush()
            self._line(f"{target} = {inner}")
            self._depth -= 1

    def _array(self, field: Field, target: str, name: str) -> None:
        assert field.of is not None
        self._length("i")
        nullable = field.is_nullable(self.version)
        if nullable:
            self._line(f"if n == {'0' if self.flexible else '-1'}:")
            self._line(f"    {target} = None")
            self._line("else:")
            self._depth += 1
        if self.flexible:
            self._line("n -= 1")
        smallest = size_min(field.of, self.version, self.flexible)
        self._line(f"if not 0 <= n * {smallest} <= end - p:")
        self._line(f"    refuse_length({name!r}, n, end - p)")
        if isinstance(field.of, Field) and field.of.kind in FIXED:
            code, size = FIXED[field.of.kind]
            if code == "16s":
                self._line(
                    f"{target} = [view[q : q + 16].tobytes() for q in range(p, p + n * 16, 16)]"
                )
            else:
                self._line(f'{target} = list(unpack_from(f">{{n}}{code}", view, p))')
            self._line(f"p += n * {size}")
        else:
            self._loop(field, target, name)
        if nullable:
            self._depth -= 1

    def _loop(self, field: Field, target: str, name: str) -> None:
        number = self._loops
        self._loops += 1
        self._line(f"{target} = a{number} = []")
        self._line("for _ in range(n):")
        self._depth += 1
        if isinstance(field.of, Field):
            self._value(field.of, f"e{number}", name)
        else:
            assert field.of is not None
            self._struct(field.of, f"e{number}")
        self._flush()
        self._line(f"a{number}.append(e{number})")
        self._depth -= 1

    def _tags(self, tagged: list[Field], target: str) -> None:
        self._run.append(("B", "t"))
        self._flush()
        self._line("if t:")
        self._depth += 1
        if not tagged:
            self._line("p = skip_tags(view, p, end, t)")
        else:
            self._known_tags(tagged, target)
        self._depth -= 1

    def _known_tags(self, tagged: list[Field], target: str) -> None:
        number = self._loops
        self._loops += 1
        self._line("if t > 127:")
        self._line("    t, p = read_uvarint(view, p, t)")
        self._line("    check_tags(t, end - p)")
        self._line("for _ in range(t):")
        self._depth += 1
        # The end of this tag gets a name of its own: values inside may have tags, too.
        self._line(f"tag, p, close{number} = read_tag(view, p, end)")
        for position, field in enumerate(tagged):
            self._line(f"{'elif' if position else 'if'} tag == {field.tag}:")
            self._depth += 1
            self._value(field, f"{target}.{field.name}", field.name)
            self._flush()
            self._line(f"if p != close{number}:")
            self._line(f"    refuse_tag_size({field.name!r})")
            self._depth -= 1
        self._line("else:")
        self._line(f"    p = close{number}")
        self._depth -= 1
