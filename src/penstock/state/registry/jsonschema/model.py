"""A JSON schema once read: a graph of nodes, each of one kind.

A schema that says several things at once (a type and an enum, properties and alternatives) is a
node of kind `combined` that asks for all of them. Nodes are compared by identity; what `saying`
answers is the same for nodes that say the same.
"""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from penstock.state.registry.json_text import write_sorted_json

MISSING: Final = object()


class NodeKind(Enum):
    """What a node says."""

    EMPTY = auto()
    """Everything is welcome."""
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
    """How many parts of a combined schema must agree."""

    ALL = "allOf"
    ANY = "anyOf"
    ONE = "oneOf"


@dataclass(slots=True, eq=False)
class ObjectRules:
    """What is said of an object."""

    properties: dict[str, "SchemaNode"] = field(default_factory=dict)
    patterns: list[tuple[Any, "SchemaNode"]] = field(default_factory=list)
    """Compiled patterns and the schemas of the properties that they find."""
    required: frozenset[str] = frozenset()
    permits_others: bool = True
    others: "SchemaNode | None" = None
    """`additionalProperties`."""
    unevaluated: "SchemaNode | None" = None
    needed_with: dict[str, frozenset[str]] = field(default_factory=dict)
    schemas_with: dict[str, "SchemaNode"] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class ArrayRules:
    """What is said of an array."""

    every: "SchemaNode | None" = None
    """`items`, where it speaks of all of them."""
    first: list["SchemaNode"] = field(default_factory=list)
    """The schemas of single items from the first on: a tuple."""
    permits_others: bool = True
    others: "SchemaNode | None" = None
    unevaluated: "SchemaNode | None" = None
    is_unique: bool = False


@dataclass(slots=True, eq=False)
class SchemaNode:
    """One schema; which attributes count depends on its kind."""

    kind: NodeKind
    source: Any = None
    """The schema that it was read from."""
    default: Any = MISSING
    connect_type: Any = None
    limits: dict[str, Any] = field(default_factory=dict)
    """Keywords that are a number: lengths, bounds, counts."""
    pattern: str | None = None
    is_integer: bool = False
    object: ObjectRules | None = None
    array: ArrayRules | None = None
    values: frozenset[str] = frozenset()
    """Of an enum or const: each written in one way."""
    criterion: Criterion = Criterion.ALL
    parts: list["SchemaNode"] = field(default_factory=list)
    """Of a combined schema; of `not`, the one."""
    target: "SchemaNode | None" = None
    """Of a reference."""
    _saying: tuple[str, str] | None = None

    def saying(self) -> tuple[str, str]:
        """The same for nodes that say the same."""
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
