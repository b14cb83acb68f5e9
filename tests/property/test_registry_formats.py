"""Schemas of all kinds: what is compatible can be read, and nonsense is refused, not choked on."""

import base64
import contextlib
import io
import json
from typing import Any

import fastavro
import pytest
from fastavro.utils import generate_one
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.state.registry.errors import Rejected
from penstock.state.registry.formats import parse, unreadable
from penstock.state.registry.parsed_schemas import AVRO, JSON, PROTOBUF, SchemaSource

PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]


def _union(branches: list[Any]) -> list[Any]:
    """Without two branches alike."""
    seen: dict[str, Any] = {}
    for branch in branches:
        label = branch["type"] if isinstance(branch, dict) else branch
        if not isinstance(branch, list):
            seen.setdefault(str(label), branch)
    return list(seen.values()) or ["null"]


def _field(name: str, kind: Any, has_default: bool) -> dict[str, Any]:
    """With a default that suits the type, where one is easily said."""
    defaults = {"null": None, "boolean": False, "int": 1, "long": 1, "string": "", "double": 1.0}
    field: dict[str, Any] = {"name": name, "type": kind}
    if has_default and isinstance(kind, str):
        field["default"] = defaults.get(kind, "" if kind == "bytes" else 1.0)
    return field


LEAVES = st.one_of(
    st.sampled_from(PRIMITIVES),
    st.builds(
        lambda symbols, default: {
            "type": "enum",
            "name": "E",
            "symbols": symbols,
            **({"default": symbols[0]} if default else {}),
        },
        st.lists(st.sampled_from(["A", "B", "C"]), min_size=1, unique=True),
        st.booleans(),
    ),
    st.builds(lambda size: {"type": "fixed", "name": "F", "size": size}, st.integers(1, 2)),
)
TYPES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda values: {"type": "map", "values": values}, inner),
        st.builds(_union, st.lists(inner, min_size=1, max_size=3)),
        st.builds(
            lambda kinds, defaults: {
                "type": "record",
                "name": "R",
                "fields": [
                    _field(name, kind, default)
                    for name, kind, default in zip("abc", kinds, defaults, strict=False)
                ],
            },
            st.lists(inner, max_size=3),
            st.lists(st.booleans(), min_size=3, max_size=3),
        ),
    ),
    max_leaves=4,
)


def _parsed(schema: Any) -> Any:
    try:
        return parse(SchemaSource(AVRO, json.dumps(schema)))
    except Rejected:
        assume(False)  # Names are used twice.


@settings(max_examples=400)
@given(TYPES, TYPES, st.booleans())
def test_compatible_avro_schema_reads_with_fastavro(writer: Any, reader: Any, same: bool) -> None:
    reader = writer if same else reader
    written, read = _parsed(writer), _parsed(reader)
    if unreadable(reader=read, writer=written):
        return
    schema = fastavro.parse_schema(json.loads(written.text))
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, generate_one(schema))
    buffer.seek(0)
    fastavro.schemaless_reader(buffer, schema, fastavro.parse_schema(json.loads(read.text)))


@given(TYPES)
def test_avro_schema_has_one_canonical_text_and_reads_itself(schema: Any) -> None:
    parsed = _parsed(schema)
    again = parse(SchemaSource(AVRO, parsed.text))
    assert again.text == parsed.text
    assert not unreadable(again, parsed)


KEYWORDS = st.sampled_from([
    "type", "properties", "items", "required", "enum", "const", "not", "anyOf", "oneOf", "allOf",
    "$ref", "$id", "$defs", "definitions", "additionalProperties", "patternProperties", "maximum",
    "minLength", "pattern", "prefixItems", "if", "dependencies", "default",
])  # fmt: skip
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-5, 5),
        st.sampled_from(["string", "object", "array", "number", "#", "#/$defs/a", "x", "^a", "("]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(KEYWORDS | st.just("a"), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=300)
@given(VALUES, VALUES)
def test_json_schemas_are_parsed_or_refused(one: Any, other: Any) -> None:
    parsed = []
    for schema in (one, other):
        try:
            parsed.append(parse(SchemaSource(JSON, json.dumps(schema))))
        except Rejected:
            return
    assert not unreadable(parsed[0], parsed[0])
    for reader in parsed:
        for writer in parsed:
            unreadable(reader, writer)


WORDS = st.sampled_from([
    "syntax", "=", '"proto3"', ";", "message", "M", "{", "}", "int32", "a", "1", "2", "oneof",
    "enum", "map", "<", ">", ",", "repeated", "optional", "[", "]", "reserved", "to", "max",
    "option", "(", ")", ".", "import", "package", "service", "rpc", "extend", "group", "-", "'x'",
])  # fmt: skip


@settings(max_examples=300)
@given(st.lists(WORDS, max_size=40))
def test_protobuf_texts_are_parsed_or_refused(words: list[str]) -> None:
    text = 'syntax = "proto3"; message M { ' + " ".join(words)
    try:
        parsed = parse(SchemaSource(PROTOBUF, text))
    except Rejected:
        return
    again = parse(SchemaSource(PROTOBUF, parsed.canonical))
    assert again.canonical == parsed.canonical


@pytest.mark.parametrize("kind", [AVRO, JSON, PROTOBUF])
@given(text=st.text(max_size=200))
def test_any_text_is_parsed_or_refused(kind: str, text: str) -> None:
    with contextlib.suppress(Rejected):
        parse(SchemaSource(kind, text))


@settings(max_examples=200)
@given(st.binary(max_size=60))
def test_any_descriptor_is_parsed_or_refused(data: bytes) -> None:
    with contextlib.suppress(Rejected):
        parse(SchemaSource(PROTOBUF, base64.b64encode(b"\n\1m" + data).decode()))
