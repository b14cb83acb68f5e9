"""JSON values: Spark's types, checked by the writer's schema, shaped by the reader's."""

import contextlib
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type

from penstock.spark.schemas.format import Malformed
from penstock.spark.schemas.json_schema import JsonCodec
from penstock.state.registry.formats import parse
from penstock.state.registry.parsed_schemas import (
    AVRO,
    JSON,
    Dependency,
    Parsed,
    Reference,
    SchemaSource,
)


def schema(properties: dict[str, Any], **rest: Any) -> Parsed:
    return parse(
        SchemaSource(JSON, json.dumps({"type": "object", "properties": properties, **rest}))
    )


RICH = schema(
    {
        "id": {"type": "integer"},
        "price": {"type": "number"},
        "ok": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "any": {},
        "several": {"type": ["string", "integer"]},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "kind": {"enum": ["a", "b"]},
        "to": {"$ref": "#/$defs/Address"},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
    required=["id"],
    **{"$defs": {"Address": {"type": "object", "properties": {"street": {"type": "string"}}}}},
)
TEXT = (
    b'{"id":1,"price":2,"ok":true,"tags":["x"],"any":{"q":[1]},"several":5,"maybe":null,'
    b'"kind":"a","to":{"street":"s"},"counts":{"k":1}}'
)


def through_arrow(form: JsonCodec, value: Any) -> Any:
    return pa.array([value], to_arrow_type(form.spark_type, timezone="UTC")).to_pylist()[0]


def test_every_kind_has_a_type() -> None:
    assert JsonCodec(RICH).spark_type.simpleString() == (
        "struct<id:bigint,price:double,ok:boolean,tags:array<string>,any:string,several:string,"
        "maybe:string,kind:string,to:struct<street:string>,counts:map<string,bigint>>"
    )


def test_every_kind_comes_back_as_it_was() -> None:
    form = JsonCodec(RICH)
    value = through_arrow(form, form.decoder(RICH)(TEXT))
    assert value["any"] == '{"q":[1]}'
    assert value["several"] == "5"
    assert value["kind"] == "a"
    again = json.loads(form.encoder()(value))
    assert again == {k: v for k, v in json.loads(TEXT).items() if v is not None}


def test_fields_that_need_not_be_there_are_left_out_when_null() -> None:
    assert JsonCodec(RICH).encoder()({"id": 3, "price": None, "to": None}) == b'{"id":3}'


def test_the_writers_schema_checks_and_the_readers_shapes() -> None:
    writer = schema({"id": {"type": "integer"}, "old": {"type": "string"}})
    reader = schema({"id": {"type": "integer"}, "new": {"type": "string"}})
    form = JsonCodec(reader)
    value = form.decoder(writer)(b'{"id":1,"old":"x"}')
    assert through_arrow(form, value) == {"id": 1, "new": None}


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"{", "no JSON"),
        (b'{"id":"x"}', 'is not of type "integer" at /id'),
        (b'{"price":1}', "required"),
        (b'{"id":1,"tags":[5]}', "at /tags/0"),
        (b"\xff\xfe", "no JSON"),
    ],
)
def test_what_does_not_follow_its_schema_is_told(payload: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        JsonCodec(RICH).decoder(RICH)(payload)


def test_a_row_that_does_not_follow_the_schema_is_not_written() -> None:
    with pytest.raises(Malformed, match="required"):
        JsonCodec(RICH).encoder()({"price": 1.0})


@given(st.binary(max_size=60))
def test_garbage_is_a_value_or_malformed_and_nothing_else(payload: bytes) -> None:
    with contextlib.suppress(Malformed):
        JsonCodec(RICH).decoder(RICH)(payload)


def test_a_schema_of_another_format_is_told() -> None:
    with pytest.raises(Malformed, match="AVRO schema"):
        JsonCodec(RICH).decoder(parse(SchemaSource(AVRO, '"string"')))


def test_referenced_schemas_are_known_and_nothing_is_fetched() -> None:
    address = '{"type":"object","properties":{"street":{"type":"string"}}}'
    text = '{"type":"object","properties":{"to":{"$ref":"address.json"}}}'
    reference = Reference("address.json", "address-value", 1)
    needed = Dependency("address-value", 1, JSON, address, ())
    form = JsonCodec(order := parse(SchemaSource(JSON, text, (reference,), (needed,))))
    assert form.spark_type.simpleString() == "struct<to:struct<street:string>>"
    assert form.decoder(order)(b'{"to":{"street":"here"}}') == {"to": {"street": "here"}}
    with pytest.raises(Malformed, match="street"):
        form.decoder(order)(b'{"to":{"street":5}}')
