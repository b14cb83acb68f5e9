"""Parsed Avro schema: a graph of types, in which each named type occurs once.

Types are compared by identity: two schemas are two graphs. A missing default differs from a null
one, so it has its own value, `MISSING`.
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
    """Attributes unknown to Avro."""


@dataclass(slots=True, eq=False)
class AvroType:
    """A type; its kind decides which attributes apply."""

    kind: str
    name: str = ""
    """Full name, with the namespace."""
    aliases: tuple[str, ...] = ()
    doc: str | None = None
    fields: list[AvroField] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    default: Any = MISSING
    """Default symbol of an enum, read for unknown symbols."""
    size: int = 0
    items: "AvroType | None" = None
    """Element type of an array or a map."""
    branches: tuple["AvroType", ...] = ()
    """Branches of a union."""
    others: dict[str, Any] = field(default_factory=dict)

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        return self.name.rpartition(".")[0]


Names: TypeAlias = dict[str, AvroType]
"""Named types by full name."""
