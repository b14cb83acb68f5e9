"""Avro as a format of the registry.

Canonical form of an Avro schema: equal schemas give equal text. Attributes come in a fixed order,
types in their shortest form, a namespace only where it changes, and each named type is spelled
out at its first occurrence. Types of other schemas are referred to by name, or with `inlined`
spelled out as well: then the schema is self-contained.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.state.registry.avro.compatibility import unreadable
from penstock.state.registry.avro.parser import (
    MISSING,
    NAMED,
    AvroField,
    AvroType,
    Names,
    read_avro,
)
from penstock.state.registry.errors import invalid
from penstock.state.registry.json_text import read_json, write_json
from penstock.state.registry.limits import StepBudget
from penstock.state.registry.parsed_schemas import AVRO, Parsed


def write_avro(root: AvroType, known: Names, *, inlined: bool = False, sorts: bool = False) -> str:
    """Writes a schema. `known`: types of referenced schemas. `sorts`: sort attributes unknown to
    Avro by name."""
    seen = {} if inlined else dict(known)
    return write_json(_Writer(seen, sorts).write(root, ""))


class _Writer:
    def __init__(self, seen: Names, sorts: bool) -> None:
        self._seen = seen
        self._sorts = sorts

    def write(self, one: AvroType, namespace: str) -> Any:
        kind = one.kind
        if kind in NAMED:
            return self._named(one, namespace)
        if kind == "union":
            return [self.write(branch, namespace) for branch in one.branches]
        if kind in ("array", "map"):
            assert one.items is not None
            items = self.write(one.items, namespace)
            attribute = "items" if kind == "array" else "values"
            return {"type": kind, attribute: items, **self._others(one.others)}
        if one.others:
            return {"type": kind, **self._others(one.others)}
        return kind

    def _named(self, one: AvroType, namespace: str) -> Any:
        if one.name in self._seen:
            return one.short_name if one.namespace == namespace else one.name
        self._seen[one.name] = one
        written: dict[str, Any] = {"type": one.kind, "name": one.short_name}
        if one.namespace != namespace:
            written["namespace"] = one.namespace
        if one.doc is not None:
            written["doc"] = one.doc
        if one.kind == "enum":
            written["symbols"] = list(one.symbols)
            if one.default is not MISSING:
                written["default"] = one.default
        elif one.kind == "fixed":
            written["size"] = one.size
        else:
            written["fields"] = [self._field(field, one.namespace) for field in one.fields]
        if one.aliases:
            written["aliases"] = [_relative(alias, one.namespace) for alias in one.aliases]
        return {**written, **self._others(one.others)}

    def _field(self, field: AvroField, namespace: str) -> dict[str, Any]:
        written: dict[str, Any] = {"name": field.name, "type": self.write(field.type, namespace)}
        if field.doc is not None:
            written["doc"] = field.doc
        if field.default is not MISSING:
            written["default"] = field.default
        if field.order not in (None, "ascending"):
            written["order"] = field.order
        if field.aliases:
            written["aliases"] = list(field.aliases)
        return {**written, **self._others(field.others)}

    def _others(self, others: dict[str, Any]) -> dict[str, Any]:
        return dict(sorted(others.items())) if self._sorts else others


def _relative(name: str, namespace: str) -> str:
    own, _, short = name.rpartition(".")
    return short if own == namespace else name


@dataclass(frozen=True, slots=True, eq=False)
class AvroSchema:
    """A parsed Avro schema, with the named types it provides to schemas that refer to it."""

    root: AvroType
    names: Names
    known: Names
    text: str

    @property
    def type(self) -> str:
        return AVRO

    @property
    def canonical(self) -> str:
        return self.text

    @property
    def record_name(self) -> str | None:
        return self.root.name or None

    def normalized(self) -> str:
        return write_avro(self.root, self.known, sorts=True)

    def formatted(self, form: str) -> str:
        """Text; for `resolved` with the types of other schemas spelled out."""
        return write_avro(self.root, {}, inlined=True) if form == "resolved" else self.text


class AvroFormat:
    """Parses and compares Avro schemas."""

    def parse(self, text: str, references: Mapping[str, Parsed]) -> AvroSchema:
        known: Names = {}
        for name, one in references.items():
            if not isinstance(one, AvroSchema):
                raise invalid(f'reference "{name[:200]}" is not an Avro schema')
            for full, named in one.names.items():
                known.setdefault(full, named)
        root, names = read_avro(read_json(text), known)
        return AvroSchema(root, names, known, write_avro(root, known))

    def unreadable(self, reader: Parsed, writer: Parsed, budget: StepBudget) -> list[str]:
        assert isinstance(reader, AvroSchema)
        assert isinstance(writer, AvroSchema)
        return unreadable(reader.root, writer.root, budget)
