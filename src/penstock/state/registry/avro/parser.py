"""Parser of Avro schemas: from JSON to a graph of types.

Checks what Avro itself requires: valid names, no name defined twice, unions without nested unions
and without duplicate branches, symbols, sizes. Defaults are not checked against their types:
Confluent's registry does that only if configured. Types of referenced schemas are known by their
full names.

Parsed Avro schema: a graph of types, in which each named type occurs once. Types are compared by
identity: two schemas are two graphs. A missing default differs from a null one, so it has its own
value, `MISSING`.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from penstock.state.registry.errors import invalid
from penstock.state.registry.limits import check_depth

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


NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
SIZE_MAX: Final = 2**31 - 1
ORDERS: Final = frozenset({"ascending", "descending", "ignore"})
_OF_TYPES: Final = frozenset(
    {"type", "name", "namespace", "doc", "aliases", "fields", "symbols", "default", "size"}
    | {"items", "values"}
)
_OF_FIELDS: Final = frozenset({"name", "type", "doc", "default", "order", "aliases"})


def read_avro(schema: Any, known: Names) -> tuple[AvroType, Names]:
    """Parses a schema; returns its root type and all named types. `known` is not modified."""
    names = dict(known)
    root = _Reader(names).read(schema, "", 0)
    return root, names


class _Reader:
    def __init__(self, names: Names) -> None:
        self._names = names

    def read(self, schema: Any, namespace: str, depth: int) -> AvroType:
        check_depth(depth)
        if isinstance(schema, str):
            return self._named(schema, namespace)
        if isinstance(schema, list):
            return self._union(schema, namespace, depth)
        if not isinstance(schema, dict):
            raise invalid(f"not an Avro type: {str(schema)[:80]}")
        kind = schema.get("type")
        if not isinstance(kind, str):
            if kind is None:
                raise invalid('a type has no "type" attribute')
            # {"type": {"type": ...}}: Avro takes the inner one.
            return self.read(kind, namespace, depth + 1)
        if kind in PRIMITIVES:
            return AvroType(kind, others=_others(schema, _OF_TYPES))
        if kind in ("array", "map"):
            attribute = "items" if kind == "array" else "values"
            if attribute not in schema:
                raise invalid(f'a type "{kind}" has no "{attribute}" attribute')
            items = self.read(schema[attribute], namespace, depth + 1)
            return AvroType(kind, items=items, others=_others(schema, _OF_TYPES))
        if kind in NAMED:
            return self._definition(kind, schema, namespace, depth)
        return self._named(kind, namespace)

    def _named(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        known = self._names.get(full) or self._names.get(name)
        if known is None:
            raise invalid(f'"{name[:200]}" is not a defined name')
        return known

    def _union(self, branches: list[Any], namespace: str, depth: int) -> AvroType:
        union = AvroType("union")
        union.branches = tuple(self.read(branch, namespace, depth + 1) for branch in branches)
        seen: set[str] = set()
        for branch in union.branches:
            if branch.kind == "union":
                raise invalid("a union must not directly contain another union")
            label = branch.name if branch.kind in NAMED else branch.kind
            if label in seen:
                raise invalid(f"a union contains {label} twice")
            seen.add(label)
        return union

    def _definition(
        self, kind: str, schema: dict[str, Any], namespace: str, depth: int
    ) -> AvroType:
        full = _full_name(schema, namespace)
        if full in self._names:
            raise invalid(f'"{full}" is defined twice')
        inner = full.rpartition(".")[0]
        made = AvroType(
            kind,
            full,
            _aliases(schema, inner),
            _text(schema, "doc"),
            others=_others(schema, _OF_TYPES),
        )
        self._names[full] = made
        if kind == "enum":
            made.symbols = _symbols(schema)
            made.default = schema.get("default", MISSING)
            if made.default is not MISSING and made.default not in made.symbols:
                raise invalid(f"the default of enum {full} is not one of its symbols")
        elif kind == "fixed":
            size = schema.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= SIZE_MAX:
                raise invalid(f"the size of {full} must be a number from 0 to {SIZE_MAX}")
            made.size = size
        else:
            made.fields = self._fields(schema, inner, depth)
        return made

    def _fields(self, schema: dict[str, Any], namespace: str, depth: int) -> list[AvroField]:
        listed = schema.get("fields")
        if not isinstance(listed, list):
            raise invalid('a record has no "fields" list')
        fields: list[AvroField] = []
        seen: set[str] = set()
        for one in listed:
            if not isinstance(one, dict) or "type" not in one:
                raise invalid(f"not a field: {str(one)[:80]}")
            name = _plain_name(one.get("name"))
            if name in seen:
                raise invalid(f"a record has two fields named {name}")
            seen.add(name)
            order = _text(one, "order")
            if order is not None and order not in ORDERS:
                raise invalid(
                    f"invalid order of field {name}: {order[:80]} is not in {sorted(ORDERS)}"
                )
            aliases = one.get("aliases", [])
            if not isinstance(aliases, list):
                raise invalid(f"the aliases of field {name} are not a list")
            fields.append(
                AvroField(
                    name,
                    self.read(one["type"], namespace, depth + 1),
                    one.get("default", MISSING),
                    _text(one, "doc"),
                    order,
                    tuple(_plain_name(alias) for alias in aliases),
                    _others(one, _OF_FIELDS),
                )
            )
        return fields


def _full_name(schema: dict[str, Any], namespace: str) -> str:
    name = schema.get("name")
    if not isinstance(name, str):
        raise invalid("a named type has no name")
    own = schema.get("namespace")
    if "." not in name:
        namespace = own if isinstance(own, str) else namespace
        name = f"{namespace}.{name}" if namespace else name
    if not _is_full_name(name):
        raise invalid(f'invalid name "{name[:200]}"')
    if name in PRIMITIVES:
        raise invalid(f'"{name}" is the name of a primitive type')
    return name


def _aliases(schema: dict[str, Any], namespace: str) -> tuple[str, ...]:
    aliases = schema.get("aliases", [])
    if not isinstance(aliases, list):
        raise invalid("aliases are not a list")
    full: list[str] = []
    for alias in aliases:
        if not isinstance(alias, str) or not _is_full_name(alias):
            raise invalid(f"invalid alias: {str(alias)[:80]}")
        full.append(alias if "." in alias or not namespace else f"{namespace}.{alias}")
    return tuple(full)


def _symbols(schema: dict[str, Any]) -> tuple[str, ...]:
    symbols = schema.get("symbols")
    if not isinstance(symbols, list):
        raise invalid('an enum has no "symbols" list')
    names = tuple(_plain_name(symbol) for symbol in symbols)
    if len(set(names)) != len(names):
        raise invalid("an enum has the same symbol twice")
    return names


def _is_full_name(name: str) -> bool:
    return all(NAME.match(part) for part in name.split("."))


def _plain_name(name: Any) -> str:
    if not isinstance(name, str) or not NAME.match(name):
        raise invalid(f"invalid name: {str(name)[:80]}")
    return name


def _text(schema: dict[str, Any], attribute: str) -> str | None:
    value = schema.get(attribute)
    return value if isinstance(value, str) else None


def _others(schema: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name not in known}
