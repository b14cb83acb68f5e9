"""Protobuf messages: Spark's types, message indexes, versions by field numbers."""

import contextlib
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.option_values import OptionError
from penstock.spark.schemas.format import Malformed
from penstock.spark.schemas.protobuf import ProtobufCodec, read_indexes, write_indexes
from penstock.state.registry.formats import parse
from penstock.state.registry.parsed_schemas import AVRO, PROTOBUF, SchemaSource

TEXT = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
message Order {
  int32 id = 1;
  string note = 2;
  repeated Line lines = 3;
  map<string, int64> counts = 4;
  enum Kind { A = 0; B = 1; }
  Kind kind = 5;
  google.protobuf.Timestamp at = 6;
  google.protobuf.StringValue name = 7;
  uint64 big = 8;
  optional int32 maybe = 9;
  oneof either { string text = 10; int32 number = 11; }
  map<string, Line> by_name = 12;
  google.protobuf.Duration took = 13;
  repeated Kind kinds = 14;
  message Line { int32 count = 1; }
}
message Other { int32 id = 1; message Inner { int32 x = 1; } }
"""
SCHEMA = parse(SchemaSource(PROTOBUF, TEXT))
ROW = {
    "id": 1,
    "note": "n",
    "lines": [{"count": 1}, {"count": 2}],
    "counts": [("a", 5)],
    "kind": "B",
    "at": datetime(2026, 1, 1, tzinfo=UTC),
    "name": "who",
    "big": Decimal(2**63 + 5),
    "maybe": None,
    "text": "t",
    "number": None,
    "by_name": [("q", {"count": 7})],
    "took": timedelta(seconds=1.5),
    "kinds": ["A", "B"],
}


def test_every_kind_has_a_spark_type() -> None:
    assert ProtobufCodec(SCHEMA).spark_type.simpleString() == (
        "struct<id:int,note:string,lines:array<struct<count:int>>,counts:map<string,bigint>,"
        "kind:string,at:timestamp,name:string,big:decimal(20,0),maybe:int,text:string,number:int,"
        "by_name:map<string,struct<count:int>>,took:interval day to second,kinds:array<string>>"
    )


def test_values_of_every_kind_round_trip() -> None:
    codec = ProtobufCodec(SCHEMA)
    assert codec.decoder(SCHEMA)(codec.encoder()(ROW)) == ROW


def test_message_is_selected_by_name() -> None:
    codec = ProtobufCodec(SCHEMA, "Other.Inner")
    payload = codec.encoder()({"x": 4})
    assert payload[:3] == b"\x04\x02\x00"
    assert codec.decoder(SCHEMA)(payload) == {"x": 4}
    with pytest.raises(Malformed, match=r"shop\.Other\.Inner, not a shop\.Order") as caught:
        ProtobufCodec(SCHEMA).decoder(SCHEMA)(payload)
    assert caught.value.kind == "WrongMessage"
    with pytest.raises(OptionError, match="did you mean 'Other'"):
        ProtobufCodec(SCHEMA, "Othr")


def test_protobuf_versions_resolve_by_field_number() -> None:
    newer = parse(
        SchemaSource(
            PROTOBUF,
            'syntax = "proto3"; package shop; message Order { int32 id = 1; string added = 99; }',
        )
    )
    payload = ProtobufCodec(SCHEMA).encoder()(ROW)
    assert ProtobufCodec(newer).decoder(SCHEMA)(payload) == {"id": 1, "added": ""}
    back = ProtobufCodec(newer).encoder()({"id": 2, "added": "x"})
    assert ProtobufCodec(SCHEMA).decoder(newer)(back)["id"] == 2


def test_unknown_enum_value_stays_a_number() -> None:
    newer = parse(
        SchemaSource(
            PROTOBUF,
            'syntax = "proto3"; package shop; message Order { enum Kind { A = 0; C = 7; } '
            "Kind kind = 5; }",
        )
    )
    payload = ProtobufCodec(newer).encoder()({"kind": "C"})
    assert ProtobufCodec(SCHEMA).decoder(newer)(payload)["kind"] == "7"


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x02", b"\x01", b"\x02\x40", b"\xff" * 12, b"\0\x08", b"\0\x12\x02\xff\xff"],
)
def test_invalid_protobuf_payload_is_malformed(payload: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        ProtobufCodec(SCHEMA).decoder(SCHEMA)(payload)
    assert caught.value.kind == "Malformed"


@given(st.binary(max_size=60))
def test_arbitrary_bytes_raise_only_malformed(payload: bytes) -> None:
    with contextlib.suppress(Malformed):
        ProtobufCodec(SCHEMA).decoder(SCHEMA)(payload)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=5))
def test_message_indexes_round_trip(path: list[int]) -> None:
    written = write_indexes(path)
    assert read_indexes(written + b"rest") == (tuple(path), len(written))


@pytest.mark.parametrize("row", [{"id": "x"}, {"nothing": 1}, {"kind": "Z"}, {"id": 1 << 40}])
def test_row_that_does_not_match_the_schema_is_unencodable(row: dict[str, object]) -> None:
    with pytest.raises(Malformed) as caught:
        ProtobufCodec(SCHEMA).encoder()(row)
    assert caught.value.kind == "Unencodable"


def test_recursive_message_is_refused() -> None:
    loop = parse(SchemaSource(PROTOBUF, 'syntax = "proto3"; message A { A next = 1; }'))
    with pytest.raises(OptionError):
        ProtobufCodec(loop)


def test_writer_schema_of_another_format_is_malformed() -> None:
    with pytest.raises(Malformed) as caught:
        ProtobufCodec(SCHEMA).decoder(parse(SchemaSource(AVRO, '"string"')))
    assert caught.value.kind == "WrongSchemaType"
