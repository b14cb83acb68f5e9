"""Avro values: decoded as fastavro wrote them; invalid ones are refused."""

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.registry.avro.schema import AvroFormat
from penstock.state.registry.avro.values import read_value

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": "double"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "stock", "type": {"type": "map", "values": "int"}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "size", "type": {"type": "enum", "name": "Size", "symbols": ["S", "M"]}},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 3}},
        {"name": "paid", "type": "boolean"},
        {"name": "next", "type": ["null", "Order"], "default": None},
    ],
}


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def read(schema: Any, data: bytes) -> Any:
    return read_value(AvroFormat().parse(json.dumps(schema), {}).root, data)


def order(**more: Any) -> dict[str, Any]:
    plain = {"id": -7, "price": 1.5, "tags": ["a", "ü"], "stock": {"x": 1}, "note": None}
    return {**plain, "size": "M", "code": b"abc", "paid": True, "next": None, **more}


def test_record_of_every_kind_is_read_back() -> None:
    data = written(ORDER, order(note="hi", next=order()))
    found = read(ORDER, data)
    assert found == order(note="hi", code="abc", next=order(code="abc"))


@given(st.recursive(st.integers(-(2**63), 2**63 - 1), lambda inner: st.lists(inner, max_size=4)))
def test_numbers_and_lists_are_read_back(value: Any) -> None:
    schema: Any = "long"
    depth, probe = 0, value
    while isinstance(probe, list) and probe:
        depth, probe = depth + 1, probe[0]
    if isinstance(value, list):
        value, schema = _flat(value), {"type": "array", "items": "long"}
    assert read(schema, written(schema, value)) == value


def _flat(value: Any) -> list[int]:
    return [one for item in value for one in (_flat(item) if isinstance(item, list) else [item])]


def test_logical_types_are_shown_as_people_write_them() -> None:
    day = {"type": "int", "logicalType": "date"}
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    amount = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    assert read(day, written("int", 20_000)) == "2024-10-04"
    assert read(moment, written("long", 0)) == "1970-01-01T00:00:00+00:00"
    assert read(amount, written("bytes", (12345).to_bytes(2, "big"))) == "123.45"
    assert read("bytes", written("bytes", b"\xff")) == {"base64": "/w=="}


@given(st.binary(max_size=64))
def test_arbitrary_bytes_raise_only_value_errors(data: bytes) -> None:
    try:
        read(ORDER, data)
    except (ValueError, IndexError):
        return


@pytest.mark.parametrize("data", [b"", b"\x02\x00", b"\xff" * 12])
def test_mismatched_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"bytes|number"):
        read("long", data)
