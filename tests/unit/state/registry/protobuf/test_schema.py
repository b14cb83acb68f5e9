"""Protobuf values are read with the message path that Confluent's serializers write before them."""

import pytest

from penstock.state.registry.protobuf.schema import ProtobufFormat, read_value

PROTO = """
syntax = "proto3";
package shop;
message Order { int64 id = 1; string city = 2; Line line = 3; message Line { int32 count = 1; } }
message Other { bool yes = 1; }
"""
ORDER = b"\x08\x07\x12\x04Graz\x1a\x02\x08\x03"


def test_first_message_is_meant_by_a_lone_zero() -> None:
    linked = ProtobufFormat().parse(PROTO, {}).linked
    found = read_value(linked, b"\x00" + ORDER)
    assert found == {"id": "7", "city": "Graz", "line": {"count": 3}}


def test_another_and_a_nested_one_are_found_by_their_path() -> None:
    linked = ProtobufFormat().parse(PROTO, {}).linked
    assert read_value(linked, b"\x02\x02" + b"\x08\x01") == {"yes": True}
    assert read_value(linked, b"\x04\x00\x00" + b"\x08\x05") == {"count": 5}


@pytest.mark.parametrize("data", [b"", b"\x02\x10", b"\xff" * 11, b"\x00\x08"])
def test_mismatched_bytes_are_refused(data: bytes) -> None:
    linked = ProtobufFormat().parse(PROTO, {}).linked
    with pytest.raises(ValueError):  # noqa: PT011
        read_value(linked, data)
