"""Avro schemas: rules that the parser enforces."""

import pytest

from penstock.state.registry.errors import Rejected
from penstock.state.registry.formats import parse
from penstock.state.registry.limits import DEPTH_MAX
from penstock.state.registry.parsed_schemas import AVRO, SchemaSource

RECORD = '{"type":"record","name":"%s","fields":[%s]}'

BAD = {
    "no JSON": "{",
    "no type": "{}",
    "an unknown type": '"text"',
    "a number": "1",
    "a name that is none": '{"type":"record","name":"1a","fields":[]}',
    "a name of a primitive type": '{"type":"record","name":"int","fields":[]}',
    "a namespace that is none": '{"type":"record","name":"a","namespace":"x..y","fields":[]}',
    "no name": '{"type":"record","fields":[]}',
    "no fields": '{"type":"record","name":"r"}',
    "a field without a type": RECORD % ("r", '{"name":"a"}'),
    "two fields of one name": RECORD % ("r", '{"name":"a","type":"int"},{"name":"a","type":"int"}'),
    "an order that is none": RECORD % ("r", '{"name":"a","type":"int","order":"up"}'),
    "a union in a union": '["int",["null"]]',
    "a union of two alike": '["int","int"]',
    "a union of two maps": '[{"type":"map","values":"int"},{"type":"map","values":"long"}]',
    "a name defined twice": '[{"type":"fixed","name":"f","size":1},{"type":"enum","name":"f",'
    '"symbols":[]}]',
    "an enum without symbols": '{"type":"enum","name":"e"}',
    "a symbol twice": '{"type":"enum","name":"e","symbols":["A","A"]}',
    "a symbol that is none": '{"type":"enum","name":"e","symbols":["A B"]}',
    "a default that is not a symbol": '{"type":"enum","name":"e","symbols":["A"],"default":"B"}',
    "a fixed without a size": '{"type":"fixed","name":"f"}',
    "a fixed of a negative size": '{"type":"fixed","name":"f","size":-1}',
    "an array without items": '{"type":"array"}',
    "a map without values": '{"type":"map","items":"int"}',
    "aliases that are not a list": '{"type":"fixed","name":"f","size":1,"aliases":"g"}',
    "too deep": '{"type":"array","items":' * (DEPTH_MAX + 1) + '"int"' + "}" * (DEPTH_MAX + 1),
    "much too deep": "[" * 100_000,
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_invalid_schema_is_refused(text: str) -> None:
    with pytest.raises(Rejected):
        parse(SchemaSource(AVRO, text))


SAME = [
    ('{"type": "string"}', '"string"'),
    ('{"type": {"type": "string"}}', '"string"'),
    (
        '{"fields": [], "name": "a.R", "type": "record"}',
        '{"type":"record","name":"R","namespace":"a","fields":[]}',
    ),
    (
        '{"type":"record","name":"R","namespace":"a","fields":[{"name":"r","type":'
        '["null","a.R"],"default":null,"order":"ascending"}]}',
        '{"type":"record","name":"R","namespace":"a","fields":[{"name":"r","type":'
        '["null","R"],"default":null}]}',
    ),
    (
        '{"type":"enum","name":"E","symbols":["A"],"default":"A","doc":"d","x":1}',
        '{"type":"enum","name":"E","doc":"d","symbols":["A"],"default":"A","x":1}',
    ),
    (
        '{"type":"long","logicalType":"timestamp-millis"}',
        '{"type":"long","logicalType":"timestamp-millis"}',
    ),
]


@pytest.mark.parametrize(("written", "kept"), SAME)
def test_canonical_text_is_stable(written: str, kept: str) -> None:
    parsed = parse(SchemaSource(AVRO, written))
    assert parsed.text == kept
    assert parse(SchemaSource(AVRO, kept)).text == kept


def test_default_of_null_is_a_default() -> None:
    text = '{"type":"record","name":"R","fields":[{"name":"a","type":"null","default":null}]}'
    assert '"default":null' in parse(SchemaSource(AVRO, text)).text


def test_records_name_is_its_full_name() -> None:
    text = '{"type":"record","name":"R","namespace":"a.b","fields":[]}'
    assert parse(SchemaSource(AVRO, text)).record_name == "a.b.R"
    assert parse(SchemaSource(AVRO, '"int"')).record_name is None
