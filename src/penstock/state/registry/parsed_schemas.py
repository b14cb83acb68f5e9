"""Interfaces of schema formats: parsed schemas and their sources.

A schema is parsed with all schemas that it references: `closure` lists them in dependency order.
The creator of a `SchemaSource` has checked its size.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from penstock.state.registry.limits import StepBudget

AVRO = "AVRO"
JSON = "JSON"
PROTOBUF = "PROTOBUF"
SCHEMA_TYPES = (AVRO, JSON, PROTOBUF)


class Reference(NamedTuple):
    """A reference to another schema, with the name used for it."""

    name: str
    subject: str
    version: int


class Dependency(NamedTuple):
    """A referenced schema."""

    subject: str
    version: int
    type: str
    text: str
    references: tuple[Reference, ...]


class SchemaSource(NamedTuple):
    """A schema's text, and the texts of all schemas that it needs."""

    type: str
    text: str
    references: tuple[Reference, ...] = ()
    closure: tuple[Dependency, ...] = ()


class Parsed(Protocol):
    """A parsed schema."""

    @property
    def type(self) -> str: ...

    @property
    def text(self) -> str:
        """Text that is stored and returned."""
        ...

    @property
    def canonical(self) -> str:
        """Canonical text: the same for equivalent texts."""
        ...

    @property
    def record_name(self) -> str | None:
        """Name of the record or message, used by RecordNameStrategy."""
        ...

    def normalized(self) -> str:
        """Text with everything sorted whose order has no meaning."""
        ...

    def formatted(self, form: str) -> str:
        """Text in another form, if the format has it."""
        ...


class SchemaFormat(Protocol):
    """One of Avro, JSON and Protobuf."""

    def parse(self, text: str, references: Mapping[str, Parsed]) -> Parsed: ...

    def unreadable(self, reader: Parsed, writer: Parsed, budget: StepBudget) -> list[str]:
        """Reasons why `reader` cannot read data of `writer`."""
        ...
