"""Protobuf texts: accepted and refused syntax, canonical output."""

import base64

import pytest
from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    struct_pb2,
    type_pb2,
    wrappers_pb2,
)

from penstock.state.registry.errors import Rejected
from penstock.state.registry.formats import parse
from penstock.state.registry.limits import DEPTH_MAX
from penstock.state.registry.parsed_schemas import PROTOBUF, Dependency, Reference, SchemaSource

EVERYTHING = """
/* A comment. */
syntax = "proto3";
package shop.orders; // Another one.

import public "google/protobuf/timestamp.proto";
import "confluent/meta.proto";
option java_package = "com." 'shop';
option optimize_for = SPEED;
option (confluent.file_meta).doc = "all of it";

message Order {
  option deprecated = true;
  reserved 100, 200 to 300, 1000 to max;
  reserved "old", 'older';
  string id = 1 [json_name = "ID", deprecated = true];
  optional int64 cents = 2;
  repeated Line lines = 3;
  map<string, .shop.orders.Order.Line> by_name = 4;
  oneof payment {
    Card card = 5;
    bytes voucher = 0x6;
  }
  State state = 7 [(confluent.field_meta) = { doc: "x" tags: ["a", "b"] }];
  google.protobuf.Timestamp placed = 8;
  message Line { int32 count = 1; Order parent = 2; }
  enum State {
    option allow_alias = true;
    reserved -5 to -2, "X";
    NEW = 0;
    OPEN = 0 [deprecated = true];
    DONE = -1;
  }
}
message Card {}
service Orders {
  rpc Place (Order) returns (stream Order);
  rpc Watch (stream Order) returns (Card) { option deprecated = true; }
}
;
"""
OLD = """
message M {
  required string a = 1 [default = "x\\n\\"y\\x41\\101"];
  optional group Inner = 2 { optional int32 b = 1; }
  extensions 100 to 199;
  extend M { optional double c = 100 [default = -inf]; }
  optional E e = 3 [default = B];
}
enum E { A = 1; B = 2; }
extend M { repeated fixed32 d = 101 [packed = true]; }
"""


@pytest.mark.parametrize("text", [EVERYTHING, OLD], ids=["proto3", "proto2"])
def test_printed_schema_parses_to_the_same(text: str) -> None:
    parsed = parse(SchemaSource(PROTOBUF, text))
    assert parsed.text == text, "comments are kept"
    again = parse(SchemaSource(PROTOBUF, parsed.canonical))
    assert again.canonical == parsed.canonical
    assert again.formatted("serialized") == parsed.formatted("serialized")
    described = parse(SchemaSource(PROTOBUF, parsed.formatted("serialized")))
    assert described.canonical == parsed.canonical


def test_everything_is_understood_as_it_is_meant() -> None:
    serialized = parse(SchemaSource(PROTOBUF, EVERYTHING)).formatted("serialized")
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(serialized))
    assert file.options.java_package == "com.shop"
    order = file.message_type[0]
    fields = {field.name: field for field in order.field}
    assert fields["id"].json_name == "ID"
    assert fields["cents"].proto3_optional
    assert order.oneof_decl[fields["cents"].oneof_index].name == "_cents"
    assert fields["voucher"].number == 6
    assert fields["lines"].type_name == ".shop.orders.Order.Line"
    assert order.nested_type[0].options.map_entry
    assert [(one.start, one.end) for one in order.reserved_range] == [
        (100, 101),
        (200, 301),
        (1000, 2**29),
    ]
    assert file.service[0].method[1].client_streaming


def test_well_known_types_come_out_as_protoc_made_them() -> None:
    for module in (any_pb2, api_pb2, struct_pb2, type_pb2, wrappers_pb2, descriptor_pb2):
        made = module.DESCRIPTOR.serialized_pb
        parsed = parse(SchemaSource(PROTOBUF, base64.b64encode(made).decode()))
        assert base64.b64decode(parsed.formatted("serialized")) == made
        assert parse(SchemaSource(PROTOBUF, parsed.text)).canonical == parsed.canonical


def test_names_are_looked_for_from_the_inside_out() -> None:
    text = """syntax = "proto3"; package a;
        message M { message N { } N x = 1; .a.N y = 2; a.N z = 3; message O { N w = 1; } }
        message N { }"""
    serialized = parse(SchemaSource(PROTOBUF, text)).formatted("serialized")
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(serialized))
    names = [field.type_name for field in file.message_type[0].field]
    assert names == [".a.M.N", ".a.N", ".a.N"]
    assert file.message_type[0].nested_type[1].field[0].type_name == ".a.M.N"


def test_imports_are_references_by_their_names() -> None:
    money = Dependency("money", 1, PROTOBUF, 'syntax = "proto3"; package m; message Money {}', ())
    text = 'syntax = "proto3"; import "x/money.proto"; message M { m.Money price = 1; }'
    source = SchemaSource(PROTOBUF, text, (Reference("x/money.proto", "money", 1),), (money,))
    assert "m.Money price = 1;" in parse(source).canonical
    with pytest.raises(Rejected, match="unknown import"):
        parse(SchemaSource(PROTOBUF, text))


BAD = {
    "nothing of the kind": "{}",
    "a word": "message",
    "base64 of something else": "aGVsbG8gd29ybGQ=",
    "an unknown syntax": 'syntax = "proto4";',
    "a message that does not end": 'syntax = "proto3"; message M {',
    "a number twice": 'syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }',
    "a name twice": 'syntax = "proto3"; message M { int32 a = 1; int32 a = 2; }',
    "a message twice": 'syntax = "proto3"; message M { } message M { }',
    "a type that is not there": 'syntax = "proto3"; message M { X a = 1; }',
    "number zero": 'syntax = "proto3"; message M { int32 a = 0; }',
    "a number that is too high": 'syntax = "proto3"; message M { int32 a = 536870912; }',
    "a reserved number": 'syntax = "proto3"; message M { reserved 1; int32 a = 1; }',
    "an enum of proto3 that begins with one": 'syntax = "proto3"; enum E { A = 1; }',
    "a field of proto2 without a label": "message M { int32 a = 1; }",
    "a label in a oneof": 'syntax = "proto3"; message M { oneof o { optional int32 a = 1; } }',
    "a text that does not end": 'syntax = "proto3',
    "a map of messages to numbers": 'syntax = "proto3"; message M { map<M, int32> a = 1; }',
    "two packages": 'syntax = "proto3"; package a; package b;',
    "a strange sign": 'syntax = "proto3"; message M { int32 a = 1; } ?',
    "too deep": "message M {" * (DEPTH_MAX + 2),
}  # fmt: skip


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_invalid_schema_is_refused(text: str) -> None:
    with pytest.raises(Rejected):
        parse(SchemaSource(PROTOBUF, text))
