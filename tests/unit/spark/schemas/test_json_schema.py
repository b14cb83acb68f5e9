"""JSON values: Spark's types, validation by the writer's schema, fields of the reader's."""

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


def through_arrow(codec: JsonCodec, value: Any) -> Any:
    return pa.array([value], to_arrow_type(codec.spark_type, timezone="UTC")).to_pylist()[0]


def test_every_kind_has_a_spark_type() -> None:
    assert JsonCodec(RICH).spark_type.simpleString() == (
        "struct<id:bigint,price:double,ok:boolean,tags:array<string>,any:string,several:string,"
        "maybe:string,kind:string,to:struct<street:string>,counts:map<string,bigint>>"
    )


def test_values_of_every_kind_round_trip() -> None:
    codec = JsonCodec(RICH)
    value = through_arrow(codec, codec.decoder(RICH)(TEXT))
    assert value["any"] == '{"q":[1]}'
    assert value["several"] == "5"
    assert value["kind"] == "a"
    again = json.loads(codec.encoder()(value))
    assert again == {k: v for k, v in json.loads(TEXT).items() if v is not None}


def test_optional_null_fields_are_omitted() -> None:
    assert JsonCodec(RICH).encoder()({"id": 3, "price": None, "to": None}) == b'{"id":3}'


def test_writer_schema_validates_and_reader_schema_selects_fields() -> None:
    writer = schema({"id": {"type": "integer"}, "old": {"type": "string"}})
    reader = schema({"id": {"type": "integer"}, "new": {"type": "string"}})
    codec = JsonCodec(reader)
    value = codec.decoder(writer)(b'{"id":1,"old":"x"}')
    assert through_arrow(codec, value) == {"id": 1, "new": None}


@pytest.mark.parametrize(
    ("payload", "kind", "location"),
    [
        (b"{", "Malformed", ""),
        (b'{"id":"x"}', "Invalid", "at /id"),
        (b'{"price":1}', "Invalid", ""),
        (b'{"id":1,"tags":[5]}', "Invalid", "at /tags/"),
        (b"\xff\xfe", "Malformed", ""),
    ],
)
def test_invalid_json_value_is_reported_with_its_location(
    payload: bytes, kind: str, location: str
) -> None:
    with pytest.raises(Malformed, match=location or None) as caught:
        JsonCodec(RICH).decoder(RICH)(payload)
    assert caught.value.kind == kind


def test_row_without_a_required_field_is_refused() -> None:
    with pytest.raises(Malformed) as caught:
        JsonCodec(RICH).encoder()({"price": 1.0})
    assert caught.value.kind == "Invalid"


@given(st.binary(max_size=60))
def test_arbitrary_bytes_raise_only_malformed(payload: bytes) -> None:
    with contextlib.suppress(Malformed):
        JsonCodec(RICH).decoder(RICH)(payload)


def test_writer_schema_of_another_format_is_malformed() -> None:
    with pytest.raises(Malformed) as caught:
        JsonCodec(RICH).decoder(parse(SchemaSource(AVRO, '"string"')))
    assert caught.value.kind == "WrongSchemaType"


def test_referenced_json_schemas_resolve_without_a_download() -> None:
    address = '{"type":"object","properties":{"street":{"type":"string"}}}'
    text = '{"type":"object","properties":{"to":{"$ref":"address.json"}}}'
    reference = Reference("address.json", "address-value", 1)
    needed = Dependency("address-value", 1, JSON, address, ())
    codec = JsonCodec(order := parse(SchemaSource(JSON, text, (reference,), (needed,))))
    assert codec.spark_type.simpleString() == "struct<to:struct<street:string>>"
    assert codec.decoder(order)(b'{"to":{"street":"here"}}') == {"to": {"street": "here"}}
    with pytest.raises(Malformed, match="street"):
        codec.decoder(order)(b'{"to":{"street":5}}')


def test_errors_do_not_contain_values() -> None:
    parsed = schema({"n": {"type": "integer"}, "items": {"items": {"type": "string"}}})
    decode = JsonCodec(parsed).decoder(parsed)
    for payloads in (
        (b'{"n": "secret"}', b'{"n": [1, 2]}'),
        (b'{"items": ["a", 17]}', b'{"items": [true]}'),
        (b"{broken", b'{"n": 5, broken'),
    ):
        texts = set()
        for payload in payloads:
            with pytest.raises(Malformed) as caught:
                decode(payload)
            texts.add(str(caught.value))
        assert len(texts) == 1, texts
