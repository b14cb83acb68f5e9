"""Pydantic models as JSON schemas; tests/clients covers the registry itself."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from penstock.app.schemas import Registry, schema_of_model
from penstock.state.registry.formats import parse, unreadable
from penstock.state.registry.parsed_schemas import JSON, SchemaSource


class Address(BaseModel):
    street: str


class Order(BaseModel):
    id: int
    lines: list[Address] = []


class WithNote(BaseModel):
    model_config = ConfigDict(title="Order")

    id: int
    lines: list[Address] = []
    note: str = ""


class Free(BaseModel):
    model_config = ConfigDict(extra="allow")

    id: int


def problems(old: type[Any], new: type[Any], *, closed: bool) -> list[str]:
    before, after = (
        parse(SchemaSource(JSON, schema_of_model(one, closed=closed))) for one in (old, new)
    )
    return unreadable(reader=after, writer=before)


def test_model_schema_is_closed_at_every_level() -> None:
    schema = json.loads(schema_of_model(Order))
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["Address"]["additionalProperties"] is False
    assert parse(SchemaSource(JSON, schema_of_model(Order))).record_name == "Order"


def test_closed_schema_accepts_added_field_with_default() -> None:
    assert not problems(Order, WithNote, closed=True)
    assert problems(Order, WithNote, closed=False)


def test_model_allowing_extra_fields_stays_open() -> None:
    assert json.loads(schema_of_model(Free))["additionalProperties"] is True


def test_payload_without_schema_id_is_rejected() -> None:
    order = Order(id=1)
    payload = b"\0\0\0\0\7" + order.model_dump_json().encode()
    assert Registry.decode(payload, Order) == order
    for bad in (b"", b"\1\0\0\0\7{}", b"\0\0"):
        with pytest.raises(ValueError, match="schema id"):
            Registry.decode(bad, Order)
