"""Parsed JSON schema: a graph of nodes, each of one kind.

A schema with several constraints (a type and an enum, properties and alternatives) is a node of
kind `combined` that requires all of them. Nodes are compared by identity; `saying` is equal for
equivalent nodes.
"""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from penstock.state.registry.json_text import write_sorted_json

MISSING: Final = object()


class NodeKind(Enum):
    """Kind of constraint that a node expresses."""

    EMPTY = auto()
    """Accepts everything."""
    FALSE = auto()
    STRING = auto()
    NUMBER = auto()
    BOOLEAN = auto()
    NULL = auto()
    OBJECT = auto()
    ARRAY = auto()
    ENUM = auto()
    CONST = auto()
    NOT = auto()
    COMBINED = auto()
    CONDITIONAL = auto()
    REFERENCE = auto()


class Criterion(Enum):
    """Number of parts of a combined schema that must match."""

    ALL = "allOf"
    ANY = "anyOf"
    ONE = "oneOf"


@dataclass(slots=True, eq=False)
class ObjectRules:
    """Constraints on an object."""

    properties: dict[str, "SchemaNode"] = field(default_factory=dict)
    patterns: list[tuple[Any, "SchemaNode"]] = field(default_factory=list)
    """Compiled patterns, and the schemas of the properties that match them."""
    required: frozenset[str] = frozenset()
    permits_others: bool = True
    others: "SchemaNode | None" = None
    """Schema of `additionalProperties`."""
    unevaluated: "SchemaNode | None" = None
    needed_with: dict[str, frozenset[str]] = field(default_factory=dict)
    schemas_with: dict[str, "SchemaNode"] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class ArrayRules:
    """Constraints on an array."""

    every: "SchemaNode | None" = None
    """`items`, if it is one schema for all items."""
    first: list["SchemaNode"] = field(default_factory=list)
    """Schemas of the first items: a tuple."""
    permits_others: bool = True
    others: "SchemaNode | None" = None
    unevaluated: "SchemaNode | None" = None
    is_unique: bool = False


@dataclass(slots=True, eq=False)
class SchemaNode:
    """A schema; its kind decides which attributes apply."""

    kind: NodeKind
    source: Any = None
    """The JSON it was parsed from."""
    default: Any = MISSING
    connect_type: Any = None
    limits: dict[str, Any] = field(default_factory=dict)
    """Numeric keywords: lengths, bounds, counts."""
    pattern: str | None = None
    is_integer: bool = False
    object: ObjectRules | None = None
    array: ArrayRules | None = None
    values: frozenset[str] = frozenset()
    """Values of an enum or const, as canonical JSON."""
    criterion: Criterion = Criterion.ALL
    parts: list["SchemaNode"] = field(default_factory=list)
    """Parts of a combined schema; one for `not`."""
    target: "SchemaNode | None" = None
    """Target of a reference."""
    _saying: tuple[str, str] | None = None

    def saying(self) -> tuple[str, str]:
        """Key that is equal for equivalent nodes."""
        if self._saying is None:
            self._saying = f"{self.kind.name} {self.criterion.name}", write_sorted_json(self.source)
        return self._saying

    @property
    def resolved(self) -> "SchemaNode":
        node = self
        for _ in range(100):
            if node.target is None:
                return node
            node = node.target
        return node
