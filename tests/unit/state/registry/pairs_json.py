"""Pairs of JSON schemas and what Confluent's strict rules say of them.

Each row: what changed, the old schema, the new one, whether the new accepts all that the old does,
and whether the old accepts all that the new does. Open, closed and partly open content models are
as in Confluent's documentation of JSON Schema compatibility.
"""

from typing import Any

Row = tuple[str, Any, Any, bool, bool]

S: dict[str, Any] = {"type": "string"}
I: dict[str, Any] = {"type": "integer"}  # noqa: E741
N: dict[str, Any] = {"type": "number"}


def open_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def closed(**properties: Any) -> dict[str, Any]:
    return {**open_object(**properties), "additionalProperties": False}


def partly(others: Any, **properties: Any) -> dict[str, Any]:
    return {**open_object(**properties), "additionalProperties": others}


def string(**keywords: Any) -> dict[str, Any]:
    return {"type": "string", **keywords}


def number(**keywords: Any) -> dict[str, Any]:
    return {"type": "number", **keywords}


def array(**keywords: Any) -> dict[str, Any]:
    return {"type": "array", **keywords}


LIST = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"value": S, "next": {"$ref": "#"}},
}
WIDER_LIST = {**LIST, "properties": {"value": {"type": ["string", "null"]}, "next": {"$ref": "#"}}}


def in_steps(value: Any, first: Any) -> dict[str, Any]:
    """Two definitions that hold each other, the first of which is also behind an alternative."""
    return {
        **closed(x=first, y={"$ref": "#/$defs/b"}),
        "$defs": {
            "a": closed(b={"$ref": "#/$defs/b"}, v=value),
            "b": closed(a={"$ref": "#/$defs/a"}),
        },
    }


IN_TURNS = {"$ref": "#/$defs/a"}

PAIRS: list[Row] = [
    ("nothing", open_object(a=S), open_object(a=S), True, True),
    ("anything becomes everything", open_object(a=S), {}, True, False),
    ("title, description and default change",
     {**S, "title": "a", "description": "b", "default": "c"}, {**S, "title": "z"}, True, True),
    ("a type changes", S, I, False, False),
    ("an object becomes an array", open_object(), array(), False, False),
    ("integer to number", I, N, True, False),
    ("a format is added", S, string(format="date"), True, True),
    # Strings.
    ("maxLength is added", S, string(maxLength=5), False, True),
    ("maxLength grows", string(maxLength=5), string(maxLength=9), True, False),
    ("minLength is added", S, string(minLength=1), False, True),
    ("minLength shrinks", string(minLength=5), string(minLength=2), True, False),
    ("a pattern is added", S, string(pattern="a+"), False, True),
    ("a pattern changes", string(pattern="a+"), string(pattern="a*"), False, False),
    # Numbers.
    ("a maximum is added", N, number(maximum=5), False, True),
    ("a maximum grows", number(maximum=5), number(maximum=6), True, False),
    ("a minimum is added", N, number(minimum=5), False, True),
    ("a minimum shrinks", number(minimum=5), number(minimum=-1), True, False),
    ("an exclusive maximum grows",
     number(exclusiveMaximum=5), number(exclusiveMaximum=6), True, False),
    ("an exclusive minimum is added", N, number(exclusiveMinimum=5), False, True),
    ("multipleOf is added", N, number(multipleOf=2), False, True),
    ("multipleOf becomes a divisor", number(multipleOf=10), number(multipleOf=5), True, False),
    ("multipleOf becomes unrelated", number(multipleOf=10), number(multipleOf=3), False, False),
    # Objects that are open.
    ("open: an optional property is added", open_object(a=S), open_object(a=S, b=I), False, True),
    ("open: a property of everything is added",
     open_object(a=S), open_object(a=S, b={}), True, True),
    ("open: a required property with a default is added",
     open_object(a=S), {**open_object(a=S, b={**I, "default": 0}), "required": ["b"]}, False, True),
    ("open: a property is removed", open_object(a=S, b=I), open_object(a=S), True, False),
    ("open: it is closed", open_object(a=S), closed(a=S), False, True),
    ("open: a property changes", open_object(a=S), open_object(a=I), False, False),
    ("open: a property widens", open_object(a=I), open_object(a=N), True, False),
    # Objects that are closed.
    ("closed: an optional property is added", closed(a=S), closed(a=S, b=I), True, False),
    ("closed: a required property is added",
     closed(a=S), {**closed(a=S, b=I), "required": ["b"]}, False, False),
    ("closed: a required property with a default is added",
     closed(a=S), {**closed(a=S, b={**I, "default": 0}), "required": ["b"]}, True, False),
    ("closed: a property is removed", closed(a=S, b=I), closed(a=S), False, True),
    ("closed: a property that may not be there is removed",
     closed(a=S, b=False), closed(a=S), True, True),
    ("closed: a property is added and it is opened",
     closed(a=S), open_object(a=S, b=I), True, False),
    # Objects that are partly open.
    ("partly: a property that is covered is added",
     partly(S, a=S), partly(S, a=S, b=S), True, True),
    ("partly: a property that is not covered is added",
     partly(S, a=S), partly(S, a=S, b=I), False, False),
    ("partly: a property that is covered is removed",
     partly(S, a=S, b=S), partly(S, a=S), True, True),
    ("partly: what else may be there widens", partly(I, a=S), partly(N, a=S), True, False),
    ("partly: it is opened", partly(S, a=S), open_object(a=S), True, False),
    ("patterns: a property that they cover is added",
     {**closed(a=S), "patternProperties": {"^x": S}},
     {**closed(a=S, x1=S), "patternProperties": {"^x": S}}, True, True),
    ("patterns: a property that they do not cover is added",
     {**closed(a=S), "patternProperties": {"^x": S}},
     {**closed(a=S, b=S), "patternProperties": {"^x": S}}, True, False),
    # Required properties.
    ("a property becomes required",
     closed(a=S), {**closed(a=S), "required": ["a"]}, False, True),
    ("a property with a default becomes required",
     closed(a=string(default="")), {**closed(a=string(default="")), "required": ["a"]}, True, True),
    ("maxProperties is added", open_object(), {**open_object(), "maxProperties": 3}, False, True),
    ("minProperties shrinks",
     {**open_object(), "minProperties": 3}, {**open_object(), "minProperties": 1}, True, False),
    ("a dependency is added",
     open_object(a=S, b=S), {**open_object(a=S, b=S), "dependencies": {"a": ["b"]}}, False, True),
    ("a dependency grows",
     {**open_object(a=S, b=S, c=S), "dependencies": {"a": ["b"]}},
     {**open_object(a=S, b=S, c=S), "dependencies": {"a": ["b", "c"]}}, False, True),
    # Arrays.
    ("items widen", array(items=I), array(items=N), True, False),
    ("items are added", array(), array(items=I), False, True),
    ("maxItems shrinks", array(maxItems=5), array(maxItems=4), False, True),
    ("minItems is removed", array(minItems=5), array(), True, False),
    ("uniqueItems is added", array(), array(uniqueItems=True), False, True),
    ("a tuple that is open gets an item", array(items=[S]), array(items=[S, I]), False, True),
    ("a tuple that is closed gets an item",
     array(items=[S], additionalItems=False), array(items=[S, I], additionalItems=False),
     True, False),
    ("prefixItems that are closed get an item",
     array(prefixItems=[S], items=False), array(prefixItems=[S, I], items=False), True, False),
    ("additional items are closed",
     array(items=[S]), array(items=[S], additionalItems=False), False, True),
    # Enums and constants.
    ("a value is added to an enum", {"enum": ["x"]}, {"enum": ["x", "y"]}, True, False),
    ("the values of an enum change", {"enum": ["x"]}, {"enum": ["y"]}, False, False),
    ("a typed enum gets a value",
     string(enum=["x"]), string(enum=["x", "y"]), True, False),
    ("an enum is added to a type", S, string(enum=["x"]), False, True),
    ("a constant changes", {"const": 1}, {"const": 2}, False, False),
    # Alternatives.
    ("a type becomes one of several", S, {"oneOf": [S, I]}, True, False),
    ("a type becomes a list of types", S, {"type": ["string", "null"]}, True, False),
    ("an alternative is added",
     {"oneOf": [S, I]}, {"oneOf": [S, I, {"type": "null"}]}, True, False),
    ("alternatives change places", {"anyOf": [S, I]}, {"anyOf": [I, S]}, True, True),
    ("an alternative changes", {"oneOf": [S, I]}, {"oneOf": [S, array()]}, False, False),
    ("oneOf becomes anyOf", {"oneOf": [S, I]}, {"anyOf": [S, I]}, True, False),
    ("anyOf becomes allOf", {"anyOf": [S, I]}, {"allOf": [S, I]}, False, True),
    ("a condition is added to allOf",
     {"allOf": [string(maxLength=5)]}, {"allOf": [string(maxLength=5), string(minLength=1)]},
     False, True),
    ("what is excluded shrinks",
     {"not": N}, {"not": I}, True, False),
    # References inside.
    ("a definition widens",
     {"$ref": "#/definitions/x", "definitions": {"x": I}},
     {"$ref": "#/definitions/x", "definitions": {"x": N}}, True, False),
    ("a recursive schema stays", LIST, LIST, True, True),
    ("a recursive schema widens", LIST, WIDER_LIST, True, False),
    ("definitions that hold each other change behind an alternative",
     in_steps(S, IN_TURNS), in_steps(I, {"anyOf": [IN_TURNS, {}]}), False, False),
    ("unevaluatedProperties closes",
     open_object(a=S), {**open_object(a=S), "unevaluatedProperties": False}, False, True),
    ("both are bytes to Connect",
     {"type": "string", "connect.type": "bytes"}, {"type": "number", "connect.type": "bytes"},
     True, True),
]  # fmt: skip
