"""Avro values as Spark's types, read and written by fastavro.

Types are those of Spark's own `from_avro`. A union of null and one other type is that type, of int
and long a long, of float and double a double; any other union is a struct with one member per
branch. Writer's and reader's schema are resolved as the Avro specification says.
"""

import io
import json
import struct
from collections.abc import Sequence
from typing import Any, Final

import fastavro
from fastavro.read import SchemaResolutionError
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.spark.option_values import OptionError
from penstock.spark.schemas.format import Decode, Encode, Malformed, reason_of
from penstock.state.registry.avro.parser import AvroType
from penstock.state.registry.avro.schema import AvroSchema
from penstock.state.registry.parsed_schemas import Parsed

_PLAIN: Final[dict[str, DataType]] = {
    "null": NullType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "fixed": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
}
_LOGICAL: Final[dict[tuple[str, str], DataType]] = {
    ("int", "date"): DateType(),
    ("long", "timestamp-millis"): TimestampType(),
    ("long", "timestamp-micros"): TimestampType(),
    ("long", "local-timestamp-millis"): TimestampNTZType(),
    ("long", "local-timestamp-micros"): TimestampNTZType(),
    ("string", "uuid"): StringType(),
}
_CONVERTED_LOGICAL: Final = frozenset(
    {name for _, name in _LOGICAL if name != "uuid"} | {"decimal"}
)
"""Logical types that fastavro converts to Python types; others keep their underlying type."""
_WIDENED: Final = ({"int", "long"}, {"float", "double"})
"""Unions whose branches are read as the wider type."""
_VALUE_ERRORS: Final = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RecursionError,
    StopIteration,
    TypeError,
    ValueError,
    struct.error,
    SchemaResolutionError,
)
"""Exceptions of fastavro for invalid values: it has no exception of its own for them."""
_PRECISION_MAX: Final = 38
_DEPTH_MAX: Final = 50


class AvroCodec:
    """Avro reader and writer for one reader's schema."""

    def __init__(self, parsed: Parsed) -> None:
        assert isinstance(parsed, AvroSchema)
        self._root = parsed.root
        self.spark_type = _spark_type(parsed.root, 0)
        self._schema = _fastavro_schema(parsed)
        self._unions = _has_unions(parsed.root, set())

    def decoder(self, writer: Parsed) -> Decode:
        if not isinstance(writer, AvroSchema):
            raise Malformed("WrongSchemaType", f"value was written with a {writer.type} schema")
        written, schema = _fastavro_schema(writer), self._schema
        read, names = fastavro.schemaless_reader, self._unions
        root = self._root

        def decode(payload: bytes) -> Any:
            stream = io.BytesIO(payload)
            try:
                value = read(stream, written, schema, return_record_name=names)
            except _VALUE_ERRORS as error:
                raise Malformed("Malformed", f"invalid Avro value: {reason_of(error)}") from None
            left = len(payload) - stream.tell()
            if left:
                raise Malformed("Malformed", "bytes after the Avro value")
            return _unions_to_structs(root, value) if names else value

        return decode

    def encoder(self) -> Encode:
        schema, write = self._schema, fastavro.schemaless_writer
        root, names = self._root, self._unions

        def encode(value: Any) -> bytes:
            stream = io.BytesIO()
            try:
                write(
                    stream,
                    schema,
                    _structs_to_unions(root, value) if names else value,
                    strict=False,
                )
            except _VALUE_ERRORS as error:
                raise Malformed(
                    "Unencodable", f"value does not match the schema: {reason_of(error)}"
                ) from None
            return stream.getvalue()

        return encode


def _fastavro_schema(parsed: AvroSchema) -> Any:
    """Schema parsed by fastavro, with referenced types inlined."""
    return fastavro.parse_schema(
        _without_unknown_logical_types(json.loads(parsed.formatted("resolved")))
    )


def _without_unknown_logical_types(schema: Any) -> Any:
    """Removes logical types that Spark lacks: their values keep the underlying type."""
    if isinstance(schema, list):
        return [_without_unknown_logical_types(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: _without_unknown_logical_types(one)
        if key in ("type", "items", "values", "fields")
        else one
        for key, one in schema.items()
    }
    if kept.get("logicalType") not in _CONVERTED_LOGICAL:
        kept.pop("logicalType", None)
    return kept


def _spark_type(node: AvroType, depth: int) -> DataType:
    if depth > _DEPTH_MAX:
        raise OptionError(f"recursive schema of {node.name or node.kind!r} has no Spark type")
    match node.kind:
        case "record" | "error":
            return StructType(
                [StructField(one.name, _spark_type(one.type, depth + 1)) for one in node.fields]
            )
        case "array":
            assert node.items is not None
            return ArrayType(_spark_type(node.items, depth + 1))
        case "map":
            assert node.items is not None
            return MapType(StringType(), _spark_type(node.items, depth + 1))
        case "union":
            return _union_type(_branches(node), depth)
    logical = node.others.get("logicalType")
    if logical == "decimal" and node.kind in ("bytes", "fixed"):
        precision, scale = int(node.others.get("precision", 0)), int(node.others.get("scale", 0))
        if 0 < precision <= _PRECISION_MAX:
            return DecimalType(precision, scale)
    return _LOGICAL.get((node.kind, str(logical)), _PLAIN[node.kind])


def _union_type(branches: Sequence[AvroType], depth: int) -> DataType:
    kinds = {one.kind for one in branches}
    if not branches:
        return NullType()
    if len(branches) == 1:
        return _spark_type(branches[0], depth + 1)
    if kinds in _WIDENED:
        return LongType() if "long" in kinds else DoubleType()
    return StructType(
        [
            StructField(f"member{index}", _spark_type(one, depth + 1))
            for index, one in enumerate(branches)
        ]
    )


def _branches(node: AvroType) -> list[AvroType]:
    return [one for one in node.branches if one.kind != "null"]


# -- unions of several types: structs with a member for each --------------------------------------


def _is_struct_union(node: AvroType) -> bool:
    kinds = {one.kind for one in _branches(node)}
    return len(_branches(node)) > 1 and kinds not in _WIDENED


def _has_unions(node: AvroType, seen: set[int]) -> bool:
    """True if the type contains a union of several types."""
    if id(node) in seen:
        return False
    seen.add(id(node))
    if _is_struct_union(node):
        return True
    inner = [one.type for one in node.fields] + list(node.branches)
    if node.items is not None:
        inner.append(node.items)
    return any(_has_unions(one, seen) for one in inner)


def _unions_to_structs(node: AvroType, value: Any) -> Any:
    """Converts unions in a value from fastavro to structs; a record is (name, value) in a union."""
    if value is None:
        return None
    match node.kind:
        case "record" | "error":
            record = value[1] if isinstance(value, tuple) else value
            return {one.name: _unions_to_structs(one.type, record[one.name]) for one in node.fields}
        case "array":
            assert node.items is not None
            return [_unions_to_structs(node.items, one) for one in value]
        case "map":
            assert node.items is not None
            return {key: _unions_to_structs(node.items, one) for key, one in value.items()}
        case "union":
            branches = _branches(node)
            if not _is_struct_union(node):
                return _unions_to_structs(branches[0], value)
            index = next(i for i, one in enumerate(branches) if _matches_branch(one, value))
            return {f"member{index}": _unions_to_structs(branches[index], value)}
    return value


def _structs_to_unions(node: AvroType, value: Any) -> Any:
    """Reverses `_unions_to_structs` for fastavro: (name, value) for a record in a union."""
    if value is None:
        return None
    match node.kind:
        case "record" | "error":
            return {
                one.name: _structs_to_unions(one.type, value.get(one.name)) for one in node.fields
            }
        case "array":
            assert node.items is not None
            return [_structs_to_unions(node.items, one) for one in value]
        case "map":
            assert node.items is not None
            return {key: _structs_to_unions(node.items, one) for key, one in dict(value).items()}
        case "union":
            branches = _branches(node)
            if not _is_struct_union(node):
                return _structs_to_unions(branches[0], value)
            for index, one in enumerate(branches):
                member = value.get(f"member{index}")
                if member is not None:
                    joined = _structs_to_unions(one, member)
                    return (one.name, joined) if one.kind == "record" else joined
            return None
    return value


def _matches_branch(node: AvroType, value: Any) -> bool:
    """True if a value from fastavro belongs to this branch."""
    if isinstance(value, tuple):
        return bool(node.name == value[0])
    kinds: dict[str, tuple[type, ...]] = {
        "boolean": (bool,),
        "int": (int,),
        "long": (int,),
        "float": (float,),
        "double": (float,),
        "bytes": (bytes,),
        "fixed": (bytes,),
        "string": (str,),
        "enum": (str,),
        "array": (list,),
        "map": (dict,),
        "record": (dict,),
    }
    if node.others.get("logicalType") in _CONVERTED_LOGICAL:
        return not isinstance(value, (bool, int, float, bytes, str, list, dict))
    if isinstance(value, bool):
        return node.kind == "boolean"
    return isinstance(value, kinds.get(node.kind, ()))
