"""What every format's parsed schema can do, and what it is parsed from.

A schema is parsed with everything that it refers to: `closure` lists those in an order in which
each comes after what it needs itself. Whoever makes a `SchemaSource` has bounded it.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from penstock.state.registry.limits import StepBudget

AVRO = "AVRO"
JSON = "JSON"
PROTOBUF = "PROTOBUF"
SCHEMA_TYPES = (AVRO, JSON, PROTOBUF)


class Reference(NamedTuple):
    """Another schema, by the name that this one uses for it."""

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
    """A schema's text, and those of all schemas that it needs."""

    type: str
    text: str
    references: tuple[Reference, ...] = ()
    closure: tuple[Dependency, ...] = ()


class Parsed(Protocol):
    """A schema that was understood."""

    @property
    def type(self) -> str: ...

    @property
    def text(self) -> str:
        """What is kept and given out."""
        ...

    @property
    def canonical(self) -> str:
        """The same for texts that say the same in different ways."""
        ...

    @property
    def record_name(self) -> str | None:
        """Of the record or message; what RecordNameStrategy takes for a subject."""
        ...

    def normalized(self) -> str:
        """The text with everything in order whose order has no meaning."""
        ...

    def formatted(self, form: str) -> str:
        """The text in another form, where the format has it."""
        ...


class SchemaFormat(Protocol):
    """One of Avro, JSON and Protobuf."""

    def parse(self, text: str, references: Mapping[str, Parsed]) -> Parsed: ...

    def unreadable(self, reader: Parsed, writer: Parsed, budget: StepBudget) -> list[str]:
        """What `reader` cannot read of what `writer` writes, in words."""
        ...
