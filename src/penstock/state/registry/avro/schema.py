"""Avro as a format of the registry."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.state.registry.avro.canonical_form import write_avro
from penstock.state.registry.avro.compatibility import unreadable
from penstock.state.registry.avro.model import AvroType, Names
from penstock.state.registry.avro.parser import read_avro
from penstock.state.registry.errors import invalid
from penstock.state.registry.json_text import read_json
from penstock.state.registry.limits import StepBudget
from penstock.state.registry.parsed_schemas import AVRO, Parsed


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
