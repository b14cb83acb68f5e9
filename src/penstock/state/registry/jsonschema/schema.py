"""JSON Schema as a format of the registry."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.state.registry.errors import invalid
from penstock.state.registry.json_text import read_json, write_json, write_sorted_json
from penstock.state.registry.jsonschema.compatibility import unaccepted
from penstock.state.registry.jsonschema.model import SchemaNode
from penstock.state.registry.jsonschema.parser import read_json_schema
from penstock.state.registry.limits import StepBudget
from penstock.state.registry.parsed_schemas import JSON, Parsed


@dataclass(frozen=True, slots=True, eq=False)
class JsonSchema:
    """A parsed JSON schema, and the documents that it may refer to."""

    document: Any
    root: SchemaNode
    library: dict[str, Any]
    text: str

    @property
    def type(self) -> str:
        return JSON

    @property
    def canonical(self) -> str:
        return self.text

    @property
    def record_name(self) -> str | None:
        title = self.document.get("title") if isinstance(self.document, dict) else None
        return title if isinstance(title, str) else None

    def normalized(self) -> str:
        return write_sorted_json(self.document)

    def formatted(self, form: str) -> str:
        return self.text


class JsonFormat:
    """Parses and compares JSON schemas."""

    def parse(self, text: str, references: Mapping[str, Parsed]) -> JsonSchema:
        document = read_json(text)
        library: dict[str, Any] = {}
        for name, one in references.items():
            if not isinstance(one, JsonSchema):
                raise invalid(f'reference "{name[:200]}" is not a JSON schema')
            library[name] = one.document
        for one in references.values():
            assert isinstance(one, JsonSchema)
            for name, inner in one.library.items():
                library.setdefault(name, inner)
        return JsonSchema(
            document, read_json_schema(document, library), library, write_json(document)
        )

    def unreadable(self, reader: Parsed, writer: Parsed, budget: StepBudget) -> list[str]:
        assert isinstance(reader, JsonSchema)
        assert isinstance(writer, JsonSchema)
        return unaccepted(writer.root, reader.root, budget)
