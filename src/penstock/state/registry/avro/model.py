"""An Avro schema once read: a graph of types, in which named types occur once.

Types are compared by identity: two schemas are two graphs. A default that is missing is not one
that is null, so it has a value of its own.
"""

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
MISSING: Final = object()


@dataclass(slots=True, eq=False)
class AvroField:
    """A field of a record."""

    name: str
    type: "AvroType"
    default: Any = MISSING
    doc: str | None = None
    order: str | None = None
    aliases: tuple[str, ...] = ()
    others: dict[str, Any] = field(default_factory=dict)
    """Attributes that Avro has no meaning for."""


@dataclass(slots=True, eq=False)
class AvroType:
    """One type; which attributes count depends on its kind."""

    kind: str
    name: str = ""
    """With its namespace."""
    aliases: tuple[str, ...] = ()
    doc: str | None = None
    fields: list[AvroField] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    default: Any = MISSING
    """Of an enum: what unknown symbols are read as."""
    size: int = 0
    items: "AvroType | None" = None
    """Of an array or a map."""
    branches: tuple["AvroType", ...] = ()
    """Of a union."""
    others: dict[str, Any] = field(default_factory=dict)

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        return self.name.rpartition(".")[0]


Names: TypeAlias = dict[str, AvroType]
"""Named types by their full names."""
