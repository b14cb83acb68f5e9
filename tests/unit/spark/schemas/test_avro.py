"""Avro values: Spark's types, schema resolution and malformed payloads."""

import contextlib
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.option_values import OptionError
from penstock.spark.schemas.avro import AvroCodec
from penstock.spark.schemas.format import Malformed
from penstock.state.registry.formats import parse
from penstock.state.registry.parsed_schemas import (
    AVRO,
    JSON,
    Dependency,
    Parsed,
    Reference,
    SchemaSource,
)


def avro(*fields: dict[str, Any], name: str = "Order") -> Parsed:
    return parse(SchemaSource(AVRO, json.dumps({"type": "record", "name": name, "fields": fields})))


def field(name: str, kind: Any, **rest: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **rest}


OLD = avro(field("id", "long"), field("gone", "string"))
NEW = avro(field("id", "long"), field("note", "string", default="none"))
RICH = avro(
    field("at", {"type": "long", "logicalType": "timestamp-millis"}),
    field("day", {"type": "int", "logicalType": "date"}),
    field("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    field("clock", {"type": "int", "logicalType": "time-millis"}),
    field("maybe", ["null", "double"]),
    field("wide", ["int", "long"]),
    field("tags", {"type": "array", "items": "string"}),
    field("counts", {"type": "map", "values": "int"}),
    field("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
    field("either", ["null", "string", {"type": "record", "name": "In", "fields": [
        field("x", "int")]}]),
)  # fmt: skip
ROW = {
    "at": datetime(2026, 1, 1, tzinfo=UTC),
    "day": date(2026, 1, 2),
    "price": Decimal("12.50"),
    "clock": 1_000,
    "maybe": None,
    "wide": 1 << 40,
    "tags": ["a"],
    "counts": {"a": 1},
    "kind": "B",
    "either": {"member1": {"x": 5}},
}


def test_avro_types_match_sparks_from_avro() -> None:
    assert AvroCodec(RICH).spark_type.simpleString() == (
        "struct<at:timestamp,day:date,price:decimal(9,2),clock:int,maybe:double,wide:bigint,"
        "tags:array<string>,counts:map<string,int>,kind:string,"
        "either:struct<member0:string,member1:struct<x:int>>>"
    )


def test_avro_values_of_every_type_round_trip() -> None:
    codec = AvroCodec(RICH)
    assert codec.decoder(RICH)(codec.encoder()(ROW)) == ROW
    text = {**ROW, "either": {"member0": "s", "member1": None}, "maybe": 1.5}
    assert codec.decoder(RICH)(codec.encoder()(text)) == {**text, "either": {"member0": "s"}}
    nothing = {**ROW, "either": None}
    assert codec.decoder(RICH)(codec.encoder()(nothing)) == nothing


def test_avro_value_of_an_older_version_is_resolved() -> None:
    payload = AvroCodec(OLD).encoder()({"id": 7, "gone": "x"})
    assert AvroCodec(NEW).decoder(OLD)(payload) == {"id": 7, "note": "none"}


@pytest.mark.parametrize("cut", range(4))
def test_truncated_avro_value_is_malformed(cut: int) -> None:
    payload = AvroCodec(OLD).encoder()({"id": 7, "gone": "xyz"})
    with pytest.raises(Malformed) as caught:
        AvroCodec(OLD).decoder(OLD)(payload[:cut])
    assert caught.value.kind == "Malformed"


def test_trailing_bytes_after_an_avro_value_are_malformed() -> None:
    payload = AvroCodec(OLD).encoder()({"id": 7, "gone": ""})
    with pytest.raises(Malformed) as caught:
        AvroCodec(OLD).decoder(OLD)(payload + b"zz")
    assert caught.value.kind == "Malformed"


@given(st.binary(max_size=60))
def test_arbitrary_bytes_raise_only_malformed(payload: bytes) -> None:
    with contextlib.suppress(Malformed):
        AvroCodec(RICH).decoder(RICH)(payload)


def test_row_that_does_not_match_the_schema_is_unencodable() -> None:
    with pytest.raises(Malformed) as caught:
        AvroCodec(OLD).encoder()({"id": "not a number", "gone": "x"})
    assert caught.value.kind == "Unencodable"


def test_writer_schema_of_another_format_is_malformed() -> None:
    with pytest.raises(Malformed) as caught:
        AvroCodec(OLD).decoder(parse(SchemaSource(JSON, '{"type":"object"}')))
    assert caught.value.kind == "WrongSchemaType"


def test_recursive_avro_schema_is_refused() -> None:
    with pytest.raises(OptionError):
        AvroCodec(avro(field("next", ["null", "Order"])))


def test_referenced_avro_types_are_resolved() -> None:
    address = '{"type":"record","name":"Address","fields":[{"name":"street","type":"string"}]}'
    text = '{"type":"record","name":"Order","fields":[{"name":"to","type":"Address"}]}'
    reference = Reference("Address", "address-value", 1)
    needed = Dependency("address-value", 1, AVRO, address, ())
    codec = AvroCodec(schema := parse(SchemaSource(AVRO, text, (reference,), (needed,))))
    row = {"to": {"street": "here"}}
    assert codec.decoder(schema)(codec.encoder()(row)) == row
