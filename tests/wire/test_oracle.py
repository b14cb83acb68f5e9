"""Every declared message, at every version, is byte for byte what Kafka's own schema says.

kio's classes are generated from Kafka's message definitions. For each of our messages this walks
both declarations side by side (same fields, same nullability, same defaults), then encodes seeded
instances with both implementations, compares the bytes, and lets each decode the other's.
kio speaks of dates, durations and error enums where the wire has integers; `_to_kio` translates.
"""

import dataclasses
import datetime
import io
import random
import types
import typing
import uuid
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from penstock.wire.codec import reader, writer
from penstock.wire.framing import read_response_header, request_frame, response_frame
from penstock.wire.messages import OWN_KEYS, REQUESTS
from penstock.wire.messages.share import OWN_TAGS
from penstock.wire.request_header import read_request_header
from penstock.wire.schema import REQUIRED, Field, wire_of
from tests.wire.instances import MESSAGES, make

INSTANCES = 6
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

KAFKAS = [row for row in MESSAGES if wire_of(row[0]).key < OWN_KEYS]
each_message = pytest.mark.parametrize(
    ("declared", "version"),
    KAFKAS,
    ids=[f"{wire_of(declared).name}-v{version}" for declared, version in KAFKAS],
)


def kio_class(declared: type[Any], version: int) -> type[Any]:
    wire = wire_of(declared)
    load = load_request_schema if REQUESTS[wire.key] is declared else load_response_schema
    found: type[Any] = load(wire.key, version)
    return found


@each_message
def test_message_is_declared_as_kafka_defines_it(declared: type[Any], version: int) -> None:
    theirs = kio_class(declared, version)
    assert wire_of(declared).name == theirs.__name__
    assert wire_of(declared).is_flexible(version) == theirs.__flexible__
    _compare(declared, theirs, version)


@each_message
def test_bytes_equal_those_of_kafkas_schema(declared: type[Any], version: int) -> None:
    theirs = kio_class(declared, version)
    write, read = writer(declared, version), reader(declared, version)
    kio_write, kio_read = entity_writer(theirs), entity_reader(theirs)
    rng = random.Random(f"{declared.__name__}-{version}")
    for _ in range(INSTANCES):
        ours = _without_own_tags(make(rng, declared, version))
        parts: list[Any] = []
        write(ours, parts)
        encoded = b"".join(parts)

        translated = _to_kio(ours, theirs, version)
        buffer = io.BytesIO()
        kio_write(buffer, translated)
        assert encoded == buffer.getvalue()

        decoded, position = read(memoryview(encoded), 0, len(encoded))
        assert position == len(encoded)
        assert decoded == ours

        kio_decoded, size = kio_read(encoded, 0)
        assert size == len(encoded)
        assert kio_decoded == translated


@each_message
def test_message_has_the_header_version_of_kafka(declared: type[Any], version: int) -> None:
    header = kio_class(declared, version).__header_schema__
    expected = io.BytesIO()
    if REQUESTS[wire_of(declared).key] is declared:
        (frame,) = request_frame(7, "me", declared, version, [b"body"])
        key = wire_of(declared).key
        fields = {"request_api_key": key, "request_api_version": version, "client_id": "me"}
        entity_writer(header)(expected, header(correlation_id=7, **fields))
        read = read_request_header(memoryview(frame), 4, len(frame))
        assert read == (key, version, 7, "me", len(frame) - 4)
    else:
        (frame,) = response_frame(7, declared, version, [b"body"])
        entity_writer(header)(expected, header(correlation_id=7))
        assert read_response_header(memoryview(frame), 4, len(frame), declared, version) == (
            7,
            len(frame) - 4,
        )
    assert frame[4:] == expected.getvalue() + b"body"
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4


def _is_kafkas(field: Field, version: int) -> bool:
    return field.is_in(version) and (field.tag is None or field.tag < OWN_TAGS)


def _without_own_tags(ours: Any) -> Any:
    """The same, with nothing to say in the tagged fields that Kafka does not have."""
    for field in wire_of(type(ours)).fields:
        if field.tag is not None and field.tag >= OWN_TAGS:
            setattr(ours, field.name, field.absent())
        value = getattr(ours, field.name)
        if field.kind == "nested" and value is not None:
            _without_own_tags(value)
        elif field.kind == "array" and isinstance(field.of, type):
            for item in value or ():
                _without_own_tags(item)
    return ours


def _compare(ours: type[Any], theirs: type[Any], version: int) -> None:
    """Same fields in the same order; tagged ones have no order but their tags."""
    declared = [field for field in wire_of(ours).fields if _is_kafkas(field, version)]
    pairs = _pair(declared, theirs)
    in_order = [field for field in declared if not field.is_tagged(version)]
    kio_order = [pairs[f.name] for f in dataclasses.fields(theirs) if "tag" not in f.metadata]
    assert [field.name for field in in_order] == [field.name for field in kio_order]
    for kio_field in dataclasses.fields(theirs):
        field = pairs[kio_field.name]
        nullable, is_array, inner = _unwrap(kio_field.type)
        kafka_type = kio_field.metadata.get("kafka_type")
        assert (field.kind == "array") == is_array
        assert kio_field.metadata.get("tag") == (field.tag if field.is_tagged(version) else None)
        # kio uses None for a zero uuid or a date of minus one.
        if is_array or kafka_type not in ("uuid", "datetime_i64"):
            assert field.is_nullable(version) == nullable, field.name
        _compare_default(field, kio_field, kafka_type)
        if dataclasses.is_dataclass(inner):
            assert isinstance(field.of, type)
            assert isinstance(inner, type)
            _compare(field.of, inner, version)


def _compare_default(field: Field, theirs: Any, kafka_type: str | None) -> None:
    """Defaults that both declare are equal; a tagged field's decides what is sent."""
    if theirs.default is dataclasses.MISSING or field.default is REQUIRED:
        return
    default = theirs.default
    if dataclasses.is_dataclass(default):
        assert field.default is None
    elif kafka_type == "uuid":
        assert field.default == bytes(16)
    elif isinstance(default, datetime.timedelta):
        assert field.default == default / datetime.timedelta(milliseconds=1)
    elif kafka_type == "datetime_i64":
        assert field.default == -1
        assert default is None
    else:
        assert field.default == default


def _pair(declared: list[Field], theirs: type[Any]) -> dict[str, Field]:
    """Our field for each of kio's, which drops the unit where it has a type for time."""
    ours = {field.name: field for field in declared}
    pairs = {}
    for kio_field in dataclasses.fields(theirs):
        kafka_type = kio_field.metadata.get("kafka_type", "")
        timed = "timedelta" in kafka_type or "datetime" in kafka_type
        name = f"{kio_field.name}_ms" if timed and kio_field.name not in ours else kio_field.name
        pairs[kio_field.name] = ours.pop(name)
    assert not ours, f"{theirs.__name__} lacks {sorted(ours)}"
    return pairs


def _unwrap(annotation: Any) -> tuple[bool, bool, Any]:
    """(may be None, is an array, the type inside)."""
    nullable = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    if nullable:
        annotation = next(
            part for part in typing.get_args(annotation) if part is not types.NoneType
        )
    is_array = typing.get_origin(annotation) is tuple
    return nullable, is_array, typing.get_args(annotation)[0] if is_array else annotation


def _to_kio(ours: Any, theirs: type[Any], version: int) -> Any:
    declared = [field for field in wire_of(type(ours)).fields if _is_kafkas(field, version)]
    pairs = _pair(declared, theirs)
    return theirs(
        **{
            kio_field.name: _value_to_kio(
                getattr(ours, pairs[kio_field.name].name), kio_field, version
            )
            for kio_field in dataclasses.fields(theirs)
        }
    )


def _value_to_kio(value: Any, kio_field: Any, version: int) -> Any:
    nullable, is_array, inner = _unwrap(kio_field.type)
    if value is None:
        # Tagged structs: a struct with all defaults in kio is None in Penstock.
        return None if nullable else kio_field.default
    if is_array:
        return tuple(_one_to_kio(item, kio_field, inner, version) for item in value)
    if kio_field.metadata.get("kafka_type") == "datetime_i64" and nullable and value == -1:
        return None
    return _one_to_kio(value, kio_field, inner, version)


def _one_to_kio(value: Any, kio_field: Any, inner: Any, version: int) -> Any:
    if dataclasses.is_dataclass(inner):
        assert isinstance(inner, type)
        return _to_kio(value, inner, version)
    match kio_field.metadata.get("kafka_type"):
        case "uuid":
            return None if value == bytes(16) else uuid.UUID(bytes=value)
        case "error_code":
            return KioErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            return EPOCH + datetime.timedelta(milliseconds=value)
    return value
