"""Avro compatibility: checks that a reader's schema can read all data of a writer's schema.

The rules of schema resolution in Avro's specification, as Java's reference implementation applies
them. Names match without their namespaces or by the reader's alias. Numbers widen; strings and
bytes are interchangeable. A field that the writer lacks needs a default. Each branch of a writer's
union must be readable. An enum needs the writer's symbols or a default.

Recursive types: see `recursive_comparison`.
"""

from typing import Final

from penstock.state.registry.avro.parser import MISSING, AvroType
from penstock.state.registry.limits import StepBudget
from penstock.state.registry.recursive_comparison import (
    Differences,
    RecursiveComparison,
    compare_until_consistent,
)

WIDER: Final = {
    ("long", "int"),
    ("float", "int"),
    ("float", "long"),
    ("double", "int"),
    ("double", "long"),
    ("double", "float"),
    ("string", "bytes"),
    ("bytes", "string"),
}
"""Pairs of reader and writer types that differ but are compatible."""
RECORDS: Final = ("record", "error")


def unreadable(reader: AvroType, writer: AvroType, budget: StepBudget) -> list[str]:
    """Reasons why `reader` cannot read data of `writer`; empty: it can."""

    def one_pass(known_bad: Differences) -> tuple[list[str], _Comparison]:
        comparison = _Comparison(budget, known_bad)
        return comparison.compare(reader, writer, ""), comparison

    return compare_until_consistent(one_pass)


class _Comparison(RecursiveComparison):
    def compare(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        pair = (id(reader), id(writer))
        return self.compare_once(pair, lambda: self._differences(reader, writer, path))

    def _differences(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        if writer.kind == "union":
            return self._writer_union(reader, writer, path)
        if reader.kind == "union":
            for branch in reader.branches:
                if not self.compare(branch, writer, path):
                    return []
            return [f"{_at(path)} the reader's union lacks {_label(writer)}"]
        is_record = reader.kind in RECORDS and writer.kind in RECORDS
        if reader.kind != writer.kind and not is_record:
            if (reader.kind, writer.kind) in WIDER:
                return []
            return [f"{_at(path)} the reader expects {_label(reader)}, not {_label(writer)}"]
        if is_record:
            return _names(reader, writer, path) + self._fields(reader, writer, path)
        if reader.kind == "enum":
            self.budget.spend(len(reader.symbols) + len(writer.symbols))
            return _names(reader, writer, path) + _symbols(reader, writer, path)
        if reader.kind == "fixed":
            found = _names(reader, writer, path)
            if reader.size != writer.size:
                found.append(f"{_at(path)} the reader expects {reader.size} bytes")
            return found
        if reader.items is not None and writer.items is not None:
            inner = "items" if reader.kind == "array" else "values"
            return self.compare(reader.items, writer.items, f"{path}/{inner}")
        return []

    def _writer_union(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        return [
            f"{_at(path)} the reader cannot read {_label(branch)} of a union"
            for branch in writer.branches
            if self.compare(reader, branch, path)
        ]

    def _fields(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        found: list[str] = []
        self.budget.spend(len(writer.fields))
        written = {field.name: field for field in writer.fields}
        for field in reader.fields:
            self.budget.spend()
            there = [written[name] for name in (field.name, *field.aliases) if name in written]
            where = f"{path}/{field.name}"
            if len(there) > 1 and len({id(one) for one in there}) > 1:
                found.append(f"{_at(where)} the field matches two of the writer's by its aliases")
            elif there:
                found += self.compare(field.type, there[0].type, where)
            elif field.default is MISSING:
                found.append(f"{_at(where)} the field has no default, and the writer lacks it")
        return found


def _names(reader: AvroType, writer: AvroType, path: str) -> list[str]:
    if reader.short_name == writer.short_name or writer.name in reader.aliases:
        return []
    return [f"{_at(path)} the reader expects the name {reader.name}, not {writer.name}"]


def _symbols(reader: AvroType, writer: AvroType, path: str) -> list[str]:
    known = set(reader.symbols)
    missing = [symbol for symbol in writer.symbols if symbol not in known]
    if not missing or reader.default is not MISSING:
        return []
    return [f"{_at(path)} the reader's enum lacks {', '.join(missing[:10])}"]


def _label(one: AvroType) -> str:
    return f"{one.kind} {one.name}" if one.name else one.kind


def _at(path: str) -> str:
    return f"{path or '/'}:"
