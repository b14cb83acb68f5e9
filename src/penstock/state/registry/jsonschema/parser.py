"""Parser of JSON schemas: from text to a graph of nodes.

Checks the form of every compared keyword; unknown keywords are ignored, as JSON Schema requires. A
schema without `type` applies to the types that its keywords are about.

Resolution of `$ref`: within the document, to an `$id` in it, or to a referenced schema. Nothing
is fetched from the network: a schema must declare the schemas it needs as references.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

import re2  # type: ignore[import-untyped]

from penstock.state.registry.errors import invalid
from penstock.state.registry.json_text import write_sorted_json
from penstock.state.registry.jsonschema.model import (
    MISSING,
    ArrayRules,
    Criterion,
    NodeKind,
    ObjectRules,
    SchemaNode,
)
from penstock.state.registry.limits import PATTERN_CHARS_MAX, StepBudget, check_depth


@dataclass(slots=True, eq=False)
class Document:
    """A schema text with its named subschemas."""

    name: str
    root: Any
    named: dict[str, tuple[Any, str]] = field(default_factory=dict)
    """Subschemas by the full address of their `$id`, `id` or `$anchor`, each with its base URI."""


def join_address(base: str, reference: str) -> str:
    try:
        return urljoin(base, reference)
    except ValueError:
        raise invalid(f"invalid address: {reference[:200]}") from None


def index_document(name: str, root: Any) -> Document:
    document = Document(name, root)
    base = _identity(root) or name
    document.named[base] = root, base
    for place, around in _places(root, base, 0):
        for address in _addresses(place, around):
            document.named.setdefault(address, (place, address.partition("#")[0]))
    return document


def _places(value: Any, base: str, depth: int) -> Iterator[tuple[dict[str, Any], str]]:
    """All objects in a document, each with the base URI around it."""
    check_depth(depth // 2)
    if isinstance(value, dict):
        yield value, base
        own = _identity(value)
        inner = join_address(base, own) if own is not None and not own.startswith("#") else base
        for key, one in value.items():
            if key not in ("enum", "const", "default", "examples"):
                yield from _places(one, inner, depth + 1)
    elif isinstance(value, list):
        for one in value:
            yield from _places(one, base, depth + 1)


def _identity(schema: Any) -> str | None:
    if not isinstance(schema, dict):
        return None
    own = schema.get("$id", schema.get("id"))
    return own if isinstance(own, str) else None


def _addresses(schema: dict[str, Any], base: str) -> Iterator[str]:
    own = _identity(schema)
    if own is not None:
        base = join_address(base, own)
        yield base.removesuffix("#")
    anchor = schema.get("$anchor")
    if isinstance(anchor, str):
        yield f"{base}#{anchor}"


class Library:
    """Documents that one schema may refer to, itself first."""

    def __init__(self, root: Any, references: dict[str, Any]) -> None:
        self.main = index_document("", root)
        self._others = {name: index_document(name, text) for name, text in references.items()}

    def find(self, reference: str, base: str, document: Document) -> tuple[Any, str, Document]:
        """Resolves a `$ref`: the schema, its inner base URI, and its document."""
        address = (
            join_address(base, reference) if not reference.startswith("#") else base + reference
        )
        whole, fragment = urldefrag(address)
        if address in document.named:
            return *document.named[address], document
        found = self._document(whole, reference, document)
        if found is None:
            raise invalid(
                f'"$ref": "{reference[:200]}" is not found: declare other schemas as references'
            )
        place, inner, there = found
        if not fragment:
            return place, inner, there
        if fragment.startswith("/"):
            return _pointed(place, fragment, reference), inner, there
        if address in there.named:
            return *there.named[address], there
        raise invalid(f'"$ref": "{reference[:200]}" is not found')

    def _document(
        self, whole: str, reference: str, document: Document
    ) -> tuple[Any, str, Document] | None:
        if whole in document.named:
            return *document.named[whole], document
        plain = urldefrag(reference)[0]
        for name in (plain, whole, whole.rpartition("/")[2]):
            if name and name in self._others:
                there = self._others[name]
                return there.root, _identity(there.root) or name, there
        for there in (self.main, *self._others.values()):
            if whole in there.named:
                return *there.named[whole], there
        return None


def _pointed(place: Any, pointer: str, reference: str) -> Any:
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict) and key in place:
            place = place[key]
        elif isinstance(place, list) and key.isdecimal() and int(key) < len(place):
            place = place[int(key)]
        else:
            raise invalid(f'"$ref": "{reference[:200]}" is not found')
    return place


STRING_KEYS: Final = ("maxLength", "minLength", "pattern")
NUMBER_KEYS: Final = ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf")
OBJECT_KEYS: Final = (
    "properties", "patternProperties", "required", "additionalProperties", "maxProperties",
    "minProperties", "dependencies", "dependentRequired", "dependentSchemas", "propertyNames",
    "unevaluatedProperties",
)  # fmt: skip
ARRAY_KEYS: Final = (
    "items", "prefixItems", "additionalItems", "maxItems", "minItems", "uniqueItems", "contains",
    "maxContains", "minContains", "unevaluatedItems",
)  # fmt: skip
COUNTS: Final = (
    "maxLength", "minLength", "maxProperties", "minProperties", "maxItems", "minItems",
    "maxContains", "minContains",
)  # fmt: skip
TYPES: Final = ("string", "integer", "number", "boolean", "null", "object", "array")


def read_json_schema(root: Any, references: dict[str, Any]) -> SchemaNode:
    """Parses a schema; `references` has the decoded JSON of referenced schemas, by name."""
    library = Library(root, references)
    return _Reader(library).read_all()


class _Reader:
    def __init__(self, library: Library) -> None:
        self._library = library
        self._known: dict[int, SchemaNode] = {}
        self._unresolved: list[tuple[SchemaNode, str, str, Document]] = []
        self._budget = StepBudget()

    def read_all(self) -> SchemaNode:
        main = self._library.main
        base = next(iter(main.named))
        root = self.read(main.root, base, main, 0)
        while self._unresolved:
            node, reference, at, document = self._unresolved.pop()
            place, inner, there = self._library.find(reference, at, document)
            known = self._known.get(id(place)) if isinstance(place, dict) else None
            node.target = known or self.read(place, inner, there, 0)
            if node.resolved.target is not None:
                raise invalid(f'"$ref": "{reference[:200]}" refers to itself')
        return root

    def read(self, schema: Any, base: str, document: Document, depth: int) -> SchemaNode:
        check_depth(depth)
        self._budget.spend()
        if schema is True:
            return SchemaNode(NodeKind.EMPTY, {})
        if schema is False:
            return SchemaNode(NodeKind.FALSE, schema)
        if not isinstance(schema, dict):
            raise invalid(f"not a schema: {str(schema)[:80]}")
        known = self._known.get(id(schema))
        if known is not None:
            return known
        node = SchemaNode(NodeKind.EMPTY, schema)
        self._known[id(schema)] = node
        own = schema.get("$id", schema.get("id"))
        if depth and isinstance(own, str) and not own.startswith("#"):
            base = join_address(base, own).partition("#")[0]
        node.default = schema.get("default", MISSING)
        node.connect_type = schema.get("connect.type")
        reference = schema.get("$ref")
        if isinstance(reference, str):
            node.kind = NodeKind.REFERENCE
            self._unresolved.append((node, reference, base, document))
            return node

        def inner(one: Any) -> SchemaNode:
            return self.read(one, base, document, depth + 1)

        parts = [*_of_types(schema, inner), *_of_values(schema), *_of_parts(schema, inner)]
        if len(parts) == 1:
            _become(node, parts[0])
        elif parts:
            node.kind, node.criterion, node.parts = NodeKind.COMBINED, Criterion.ALL, parts
        return node


def _become(node: SchemaNode, part: SchemaNode) -> None:
    """Reduces a schema with a single constraint to that constraint."""
    node.kind, node.limits, node.pattern = part.kind, part.limits, part.pattern
    node.is_integer, node.object, node.array = part.is_integer, part.object, part.array
    node.values, node.criterion, node.parts = part.values, part.criterion, part.parts


Inner = Callable[[Any], SchemaNode]


def _of_types(schema: dict[str, Any], inner: Inner) -> Iterator[SchemaNode]:
    """Constraints on single types of values."""
    named = schema.get("type")
    if isinstance(named, list):
        if not named:
            raise invalid('"type" is an empty list')
        yield SchemaNode(
            NodeKind.COMBINED,
            criterion=Criterion.ANY,
            source=schema,
            parts=[_of_type(one, schema, inner) for one in named],
        )
    elif named is not None:
        yield _of_type(named, schema, inner)
    else:
        for kind, keys in (
            ("string", STRING_KEYS),
            ("number", NUMBER_KEYS),
            ("object", OBJECT_KEYS),
            ("array", ARRAY_KEYS),
        ):
            if any(key in schema for key in keys):
                yield _of_type(kind, schema, inner)


def _of_type(named: Any, schema: dict[str, Any], inner: Inner) -> SchemaNode:
    if named not in TYPES:
        raise invalid(f'invalid "type" {str(named)[:80]}: use one of {", ".join(TYPES)}')
    if named == "string":
        node = SchemaNode(NodeKind.STRING, schema, limits=_limits(schema, STRING_KEYS[:2]))
        node.pattern = _text(schema, "pattern")
    elif named in ("number", "integer"):
        node = SchemaNode(
            NodeKind.NUMBER, schema, limits=_bounds(schema), is_integer=named == "integer"
        )
    elif named == "object":
        node = SchemaNode(
            NodeKind.OBJECT, schema, limits=_limits(schema, ("maxProperties", "minProperties"))
        )
        node.object = _object(schema, inner)
    elif named == "array":
        keys = ("maxItems", "minItems", "maxContains", "minContains")
        node = SchemaNode(NodeKind.ARRAY, schema, limits=_limits(schema, keys))
        node.array = _array(schema, inner)
    else:
        node = SchemaNode(NodeKind.BOOLEAN if named == "boolean" else NodeKind.NULL, schema)
    return node


def _of_values(schema: dict[str, Any]) -> Iterator[SchemaNode]:
    if "const" in schema:
        yield SchemaNode(
            NodeKind.CONST, schema, values=frozenset({write_sorted_json(schema["const"])})
        )
    if "enum" in schema:
        values = schema["enum"]
        if not isinstance(values, list):
            raise invalid('"enum" is not a list')
        yield SchemaNode(
            NodeKind.ENUM, schema, values=frozenset(write_sorted_json(value) for value in values)
        )


def _of_parts(schema: dict[str, Any], inner: Inner) -> Iterator[SchemaNode]:
    if "not" in schema:
        yield SchemaNode(NodeKind.NOT, schema, parts=[inner(schema["not"])])
    if "if" in schema:
        yield SchemaNode(NodeKind.CONDITIONAL, schema, parts=[inner(schema["if"])])
    for criterion in Criterion:
        parts = schema.get(criterion.value)
        if parts is None:
            continue
        if not isinstance(parts, list) or not parts:
            raise invalid(f'"{criterion.value}" is not a list of schemas')
        members = [inner(part) for part in parts]
        yield SchemaNode(NodeKind.COMBINED, schema, criterion=criterion, parts=members)


def _object(schema: dict[str, Any], inner: Inner) -> ObjectRules:
    rules = ObjectRules()
    for name, one in _mapping(schema, "properties").items():
        rules.properties[name] = inner(one)
    for pattern, one in _mapping(schema, "patternProperties").items():
        rules.patterns.append((_compiled(pattern), inner(one)))
    rules.required = _names(schema, "required")
    others = schema.get("additionalProperties", True)
    if isinstance(others, bool):
        rules.permits_others = others
    else:
        rules.others = inner(others)
    if "unevaluatedProperties" in schema:
        rules.unevaluated = inner(schema["unevaluatedProperties"])
    for name, one in _mapping(schema, "dependencies").items():
        if isinstance(one, list):
            rules.needed_with[name] = _names({name: one}, name)
        else:
            rules.schemas_with[name] = inner(one)
    for name in _mapping(schema, "dependentRequired"):
        rules.needed_with[name] = _names(schema["dependentRequired"], name)
    for name, one in _mapping(schema, "dependentSchemas").items():
        rules.schemas_with[name] = inner(one)
    return rules


def _array(schema: dict[str, Any], inner: Inner) -> ArrayRules:
    rules = ArrayRules(is_unique=schema.get("uniqueItems") is True)
    items = schema.get("items")
    first = schema.get("prefixItems")
    others: Any = True
    if first is None and isinstance(items, list):
        first, others = items, schema.get("additionalItems", True)
    elif first is not None:
        others = True if items is None else items
    else:
        rules.every = inner(items) if items is not None else None
        others = schema.get("additionalItems", True)
    if first is not None:
        if not isinstance(first, list):
            raise invalid('"prefixItems" is not a list')
        rules.first = [inner(one) for one in first]
    if isinstance(others, bool):
        rules.permits_others = others
    else:
        rules.others = inner(others)
    if "unevaluatedItems" in schema:
        rules.unevaluated = inner(schema["unevaluatedItems"])
    return rules


def _limits(schema: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    limits = {key: schema[key] for key in keys if schema.get(key) is not None}
    for key, value in limits.items():
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if not is_whole or isinstance(value, bool) or value < 0:
            raise invalid(f'"{key}" must be a whole number, 0 or more')
    return limits


def _bounds(schema: dict[str, Any]) -> dict[str, Any]:
    bounds: dict[str, Any] = {}
    for key in NUMBER_KEYS:
        value = schema.get(key)
        if isinstance(value, bool) or value is None:
            continue
        if not isinstance(value, int | float):
            raise invalid(f'"{key}" is not a number')
        bounds[key] = value
    if bounds.get("multipleOf", 1) <= 0:
        raise invalid('"multipleOf" must be greater than zero')
    # Draft 4: the bound is a separate keyword, and this one excludes it from the range.
    for exclusive, plain in (("exclusiveMaximum", "maximum"), ("exclusiveMinimum", "minimum")):
        if schema.get(exclusive) is True and plain in bounds:
            bounds[exclusive] = bounds.pop(plain)
    return bounds


def _mapping(schema: dict[str, Any], key: str) -> dict[str, Any]:
    value = schema.get(key, {})
    if not isinstance(value, dict):
        raise invalid(f'"{key}" is not an object')
    return value


def _names(schema: dict[str, Any], key: str) -> frozenset[str]:
    value = schema.get(key, [])
    if key == "required" and isinstance(value, bool):
        return frozenset()  # Draft 3, which Confluent's registry ignores as well.
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise invalid(f'"{key}" is not a list of names')
    return frozenset(value)


def _text(schema: dict[str, Any], key: str) -> str | None:
    value = schema.get(key)
    if value is not None and not isinstance(value, str):
        raise invalid(f'"{key}" is not a string')
    return value


def _compiled(pattern: str) -> Any:
    if len(pattern) > PATTERN_CHARS_MAX:
        raise invalid(f"a pattern has more than {PATTERN_CHARS_MAX} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise invalid(f"invalid pattern {pattern[:80]!r}: {error}") from None
