"""JSON schemas: refused forms, and resolution of `$ref`."""

import pytest

from penstock.state.registry.errors import Rejected
from penstock.state.registry.formats import parse, unreadable
from penstock.state.registry.json_text import write_json
from penstock.state.registry.limits import DEPTH_MAX, PATTERN_CHARS_MAX
from penstock.state.registry.parsed_schemas import JSON, Dependency, Parsed, Reference, SchemaSource

LONG = "a" * (PATTERN_CHARS_MAX + 1)
BAD = {
    "no JSON": "{",
    "a text": '"string"',
    "an unknown type": '{"type":"text"}',
    "a type of a number": '{"type":1}',
    "no types at all": '{"type":[]}',
    "properties in a list": '{"properties":[]}',
    "a property that is a number": '{"properties":{"a":1}}',
    "required names that are numbers": '{"required":[1]}',
    "a count below zero": '{"maxLength":-1}',
    "a count that is a text": '{"maxItems":"5"}',
    "a bound that is a text": '{"maximum":"5"}',
    "multiples of nothing": '{"multipleOf":0}',
    "an enum that is not a list": '{"enum":"a"}',
    "no alternatives": '{"oneOf":[]}',
    "a pattern that is none": '{"patternProperties":{"(":{}}}',
    "a pattern that looks ahead": '{"patternProperties":{"(?=a)":{}}}',
    "a pattern that is long": write_json(
        {"patternProperties": {"a" * (PATTERN_CHARS_MAX + 1): {}}}
    ),
    "a reference to nothing": '{"$ref":"#/definitions/none"}',
    "a reference to elsewhere": '{"$ref":"http://example.com/x.json"}',
    "a reference to itself": '{"$ref":"#"}',
    "two references in a circle": '{"$ref":"#/a","a":{"$ref":"#/b"},"b":{"$ref":"#/a"}}',
    "an address that is none": '{"properties":{"a":{"$ref":"http://["}}}',
    "too deep": '{"items":' * (DEPTH_MAX + 1) + "{}" + "}" * (DEPTH_MAX + 1),
    "much too deep": "[" * 100_000,
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_invalid_schema_is_refused(text: str) -> None:
    with pytest.raises(Rejected):
        parse(SchemaSource(JSON, text))


def accepts(new: Parsed, old: str) -> bool:
    return not unreadable(reader=new, writer=parse(SchemaSource(JSON, old)))


REFERRING = [
    {"$ref": "#/definitions/n", "definitions": {"n": {"type": "number"}}},
    {"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"type": "number"}}},
    {"$ref": "#n", "$defs": {"x": {"$anchor": "n", "type": "number"}}},
    {"$ref": "#n", "definitions": {"x": {"$id": "#n", "type": "number"}}},
    {"$id": "http://x/root", "$ref": "n", "$defs": {"x": {"$id": "n", "type": "number"}}},
    {"$id": "http://x/root", "$ref": "http://x/n#/y",
     "$defs": {"x": {"$id": "n", "y": {"type": "number"}}}},
    {"$ref": "#/definitions/a",
     "definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"type": "number"}}},
]  # fmt: skip


@pytest.mark.parametrize("schema", REFERRING, ids=range(len(REFERRING)))
def test_reference_is_resolved(schema: object) -> None:
    parsed = parse(SchemaSource(JSON, write_json(schema)))
    assert accepts(parsed, '{"type":"integer"}')
    assert not accepts(parsed, '{"type":"string"}')


@pytest.mark.parametrize("name", ["number.json", "http://example.com/number.json"])
def test_reference_to_another_schema_is_found_by_its_name(name: str) -> None:
    number = Dependency("numbers", 3, JSON, '{"$defs":{"n":{"type":"number"}}}', ())
    parsed = parse(
        SchemaSource(
            JSON,
            write_json({"$ref": f"{name}#/$defs/n"}),
            (Reference(name, "numbers", 3),),
            (number,),
        )
    )
    assert accepts(parsed, '{"type":"integer"}')
    assert not accepts(parsed, '{"type":"string"}')


def test_alternatives_of_alternatives_are_given_up_on() -> None:
    """Each pair costs a step, and a schema has only so many."""
    names = [f"d{n}" for n in range(700)]
    definitions = {
        name: {"type": "object", "properties": {name: {"type": "string"}}} for name in names
    }
    parts = [{"$ref": f"#/definitions/{name}"} for name in names]
    schema = parse(SchemaSource(JSON, write_json({"anyOf": parts, "definitions": definitions})))
    other = parse(
        SchemaSource(JSON, write_json({"anyOf": parts[::-1], "definitions": definitions}))
    )
    with pytest.raises(Rejected, match="too complex"):
        unreadable(schema, other)
