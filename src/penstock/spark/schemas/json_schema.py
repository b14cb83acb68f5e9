"""JSON values as Spark's types, checked against the JSON schema they were written with.

An object with properties is a struct, one with only `additionalProperties` a map. A value of
several possible types is a string that contains its JSON. Integers are bigint, numbers double.

Reading: the writer's schema (by the id in the record) must accept the value. The reader's schema
determines the fields; a missing one is null.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import jsonschema_rs
import msgspec
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from penstock.spark.schemas.format import Decode, Encode, Malformed, reason_of
from penstock.state.registry.jsonschema.model import Criterion, NodeKind, SchemaNode
from penstock.state.registry.jsonschema.schema import JsonSchema
from penstock.state.registry.parsed_schemas import Parsed

Converter: TypeAlias = Callable[[Any], Any]

_DEPTH_MAX: Final = 50


class JsonCodec:
    """JSON reader and writer for one reader's schema."""

    def __init__(self, parsed: Parsed) -> None:
        assert isinstance(parsed, JsonSchema)
        self._parsed = parsed
        self.spark_type = _spark_type(parsed.root, 0)

    def decoder(self, writer: Parsed) -> Decode:
        if not isinstance(writer, JsonSchema):
            raise Malformed("WrongSchemaType", f"value was written with a {writer.type} schema")
        check = _checker(writer)
        change = _read_converter(self._parsed.root, 0)
        load = msgspec.json.Decoder().decode

        def decode(payload: bytes) -> Any:
            try:
                value = load(payload)
            except (msgspec.DecodeError, RecursionError) as error:
                raise Malformed("Malformed", f"invalid JSON: {reason_of(error)}") from None
            check(value)
            return value if change is None else change(value)

        return decode

    def encoder(self) -> Encode:
        check = _checker(self._parsed)
        change = _write_converter(self._parsed.root, 0)
        dump = msgspec.json.Encoder().encode

        def encode(value: Any) -> bytes:
            try:
                plain = change(msgspec.to_builtins(value))
            except (msgspec.MsgspecError, TypeError, ValueError) as error:
                raise Malformed(
                    "Unencodable", f"value does not match the schema: {reason_of(error)}"
                ) from None
            check(plain)
            return dump(plain)

        return encode


def _checker(schema: JsonSchema) -> Callable[[Any], None]:
    def retrieve(address: str) -> Any:
        for name, document in schema.library.items():
            if address == name or address.rstrip("#").endswith(f"/{name}"):
                return document
        raise LookupError(f"unknown reference {address}")

    try:
        validator = jsonschema_rs.validator_for(
            schema.document, retriever=retrieve, mask="the value"
        )
    except (ValueError, LookupError) as error:
        raise Malformed("BadSchema", f"unusable schema: {str(error)[:300]}") from None
    is_valid, validate = validator.is_valid, validator.validate

    def check(value: Any) -> None:
        if not is_valid(value):
            try:
                validate(value)
            except jsonschema_rs.ValidationError as error:
                # Without values and indexes, so that the same fault has the same text.
                steps = ("*" if isinstance(step, int) else step for step in error.instance_path)
                place = "".join(f"/{step}" for step in steps)
                where = f" at {place}" if place else ""
                raise Malformed("Invalid", f"{error.message[:300]}{where}") from None

    return check


def _effective_node(node: SchemaNode) -> SchemaNode:
    """Subschema that determines the type, if all others only narrow it or allow null."""
    node = node.resolved
    for _ in range(_DEPTH_MAX):
        if node.kind is not NodeKind.COMBINED:
            return node
        parts = [part.resolved for part in node.parts]
        parts = [part for part in parts if part.kind not in (NodeKind.NULL, NodeKind.EMPTY)]
        if node.criterion is Criterion.ALL:
            typed = [part for part in parts if _has_type(part)]
            parts = typed or parts
        if len(parts) != 1:
            return node
        node = parts[0]
    return node


def _is_string(node: SchemaNode) -> bool:
    """True for the type string, and for an enum or const of strings."""
    if node.kind in (NodeKind.ENUM, NodeKind.CONST):
        return all(value.startswith('"') or value == "null" for value in node.values)
    return node.kind is NodeKind.STRING


def _has_type(node: SchemaNode) -> bool:
    return node.kind not in (NodeKind.ENUM, NodeKind.CONST, NodeKind.NOT, NodeKind.CONDITIONAL)


def _spark_type(schema: SchemaNode, depth: int) -> DataType:
    node = _effective_node(schema)
    if depth > _DEPTH_MAX:
        return StringType()
    match node.kind:
        case NodeKind.STRING:
            return StringType()
        case NodeKind.NUMBER:
            return LongType() if node.is_integer else DoubleType()
        case NodeKind.BOOLEAN:
            return BooleanType()
        case NodeKind.NULL:
            return NullType()
        case NodeKind.ARRAY if node.array is not None and node.array.every is not None:
            return ArrayType(_spark_type(node.array.every, depth + 1))
        case NodeKind.OBJECT if node.object is not None:
            rules = node.object
            if rules.properties:
                return StructType(
                    [
                        StructField(name, _spark_type(one, depth + 1))
                        for name, one in rules.properties.items()
                    ]
                )
            if rules.others is not None:
                return MapType(StringType(), _spark_type(rules.others, depth + 1))
    return StringType()


def _is_json_text(node: SchemaNode, depth: int) -> bool:
    """True if the value is represented as JSON in a string."""
    return isinstance(_spark_type(node, depth), StringType) and not _is_string(
        _effective_node(node)
    )


def _as_json(value: Any) -> Any:
    return None if value is None else msgspec.json.encode(value).decode()


def _read_converter(schema: SchemaNode, depth: int) -> Converter | None:
    """Conversion of a value before Arrow accepts it; None: not needed."""
    if _is_json_text(schema, depth):
        return _as_json
    node = _effective_node(schema)
    if depth > _DEPTH_MAX:
        return None
    if node.kind is NodeKind.ARRAY and node.array is not None and node.array.every is not None:
        each = _read_converter(node.array.every, depth + 1)
        return None if each is None else _list_converter(each)
    if node.kind is NodeKind.OBJECT and node.object is not None:
        rules = node.object
        if rules.properties:
            changes = {
                name: _read_converter(one, depth + 1) for name, one in rules.properties.items()
            }
            needed = {name: one for name, one in changes.items() if one is not None}
            return _fields_converter(needed) if needed else None
        if rules.others is not None:
            every = _read_converter(rules.others, depth + 1)
            return _map_converter(every)
    return None


def _list_converter(change: Converter) -> Converter:
    return lambda value: [change(one) for one in value] if isinstance(value, list) else value


def _fields_converter(changes: dict[str, Converter]) -> Converter:
    def change(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {**value, **{n: one(value[n]) for n, one in changes.items() if n in value}}

    return change


def _map_converter(every: Converter | None) -> Converter:
    """Converter of an object to pairs, which Arrow requires for maps."""

    def change(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return [(key, one if every is None else every(one)) for key, one in value.items()]

    return change


def _write_converter(schema: SchemaNode, depth: int) -> Converter:
    """Converter from Spark's value to JSON; leaves out optional fields that are null."""
    if _is_json_text(schema, depth):
        return lambda value: msgspec.json.decode(value) if isinstance(value, str) else value
    node = _effective_node(schema)
    if depth > _DEPTH_MAX:
        return lambda value: value
    if node.kind is NodeKind.ARRAY and node.array is not None and node.array.every is not None:
        return _list_converter(_write_converter(node.array.every, depth + 1))
    if node.kind is NodeKind.OBJECT and node.object is not None:
        rules = node.object
        if rules.properties:
            inner = {
                name: _write_converter(one, depth + 1) for name, one in rules.properties.items()
            }
            required = rules.required

            def change(value: Any) -> Any:
                if not isinstance(value, dict):
                    return value
                return {
                    name: None if one is None else inner[name](one) if name in inner else one
                    for name, one in value.items()
                    if one is not None or name in required
                }

            return change
        if rules.others is not None:
            others = _write_converter(rules.others, depth + 1)
            return lambda value: (
                None if value is None else {key: others(one) for key, one in dict(value).items()}
            )
    return lambda value: value
