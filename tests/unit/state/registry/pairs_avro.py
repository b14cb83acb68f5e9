"""Pairs of Avro schemas and what Avro's rules of resolution say of them.

Each row: what changed, the old schema, the new one, whether the new reads what the old wrote, and
whether the old reads what the new writes. As in the specification's chapter on schema resolution
and the documentation of Confluent's compatibility types.
"""

from typing import Any

Row = tuple[str, Any, Any, bool, bool]


def record(*fields: Any, name: str = "R", **others: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **others}


def field(name: str, kind: Any = "string", **others: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **others}


def enum(*symbols: str, name: str = "E", **others: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **others}


def fixed(size: int, name: str = "F", **others: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **others}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapping(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


A, B, C = field("a"), field("b", default="x"), field("b")
TREE = record(field("v", "int"), field("next", ["null", "R"], default=None))
WIDE_TREE = record(field("v", "long"), field("next", ["null", "R"], default=None))
NARROW_TREE = record(field("v", "int"), field("next", "R", default={}))
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
TIME = {"type": "long", "logicalType": "timestamp-millis"}


def in_steps(value: str, *others: Any) -> dict[str, Any]:
    """Two records that hold each other, the first of which is also behind an alternative."""
    inner = record(
        field("b", ["null", record(field("a", ["null", "A"]), name="B")]),
        field("v", value),
        name="A",
    )
    return record(field("x", [inner, *others]), field("y", "B"))


ANOTHER = record(name="Other", aliases=["A"])

PAIRS: list[Row] = [
    # Records.
    ("nothing", record(A), record(A), True, True),
    ("a field with a default is added", record(A), record(A, B), True, True),
    ("a field without a default is added", record(A), record(A, C), False, True),
    ("a field with a default is removed", record(A, B), record(A), True, True),
    ("a field without a default is removed", record(A, C), record(A), True, False),
    ("a default is added", record(A, C), record(A, B), True, True),
    ("a default is removed", record(A, B), record(A, C), True, True),
    ("a default changes", record(A, B), record(A, field("b", default="y")), True, True),
    ("fields change places", record(A, C), record(C, A), True, True),
    ("a field is renamed", record(A), record(field("z")), False, False),
    ("a field is renamed with an alias", record(A), record(field("z", aliases=["a"])), True, False),
    (
        "a field is renamed with an alias and a default",
        record(field("a", default="")),
        record(field("z", aliases=["a"], default="")),
        True,
        True,
    ),
    ("the record is renamed", record(A), record(A, name="S"), False, False),
    ("the record is renamed with an alias",
     record(A), record(A, name="S", aliases=["R"]), True, False),
    ("the namespace changes", record(A, namespace="n"), record(A, namespace="m"), True, True),
    ("a doc is added", record(A), record(A, doc="said"), True, True),
    ("the order of a field changes", record(A), record(field("a", order="descending")), True, True),
    ("all fields go", record(A), record(), True, False),
    ("a record becomes a string", record(A), "string", False, False),
    ("a record becomes a map", record(A), mapping("string"), False, False),
    ("a nested field is added with a default",
     record(field("r", record(A, name="I"))),
     record(field("r", record(A, B, name="I"))), True, True),
    ("a nested field is added without a default",
     record(field("r", record(A, name="I"))),
     record(field("r", record(A, C, name="I"))), False, True),
    ("a field of an enum with a default is added: that is not a default of the field",
     record(A), record(A, field("e", enum("X", default="X"))), False, True),
    ("two fields with defaults are added",
     record(A), record(A, B, field("c", "int", default=1)), True, True),
    # Numbers, strings and bytes.
    ("int to long", "int", "long", True, False),
    ("int to float", "int", "float", True, False),
    ("int to double", "int", "double", True, False),
    ("long to float", "long", "float", True, False),
    ("long to double", "long", "double", True, False),
    ("float to double", "float", "double", True, False),
    ("int to string", "int", "string", False, False),
    ("int to boolean", "int", "boolean", False, False),
    ("float to long", "float", "long", False, True),
    ("string to bytes", "string", "bytes", True, True),
    ("bytes to fixed", "bytes", fixed(4), False, False),
    ("null to string", "null", "string", False, False),
    ("a field's int to long", record(field("a", "int")), record(field("a", "long")), True, False),
    ("a field's int to string",
     record(field("a", "int")), record(field("a", "string")), False, False),
    ("bytes become a decimal", "bytes", DECIMAL, True, True),
    ("a decimal's scale changes", DECIMAL, {**DECIMAL, "scale": 3}, True, True),
    ("a long becomes a timestamp", "long", TIME, True, True),
    ("an int becomes a timestamp", "int", TIME, True, False),
    # Enums and fixed.
    ("a symbol is added", enum("X"), enum("X", "Y"), True, False),
    ("a symbol is removed", enum("X", "Y"), enum("X"), False, True),
    ("a symbol is removed, with a default", enum("X", "Y"), enum("X", default="X"), True, True),
    ("a symbol is added, both with a default",
     enum("X", default="X"), enum("X", "Y", default="X"), True, True),
    ("symbols change places", enum("X", "Y"), enum("Y", "X"), True, True),
    ("an enum is renamed", enum("X"), enum("X", name="G"), False, False),
    ("an enum is renamed with an alias",
     enum("X"), enum("X", name="G", aliases=["E"]), True, False),
    ("an enum becomes a string", enum("X"), "string", False, False),
    ("a size changes", fixed(4), fixed(8), False, False),
    ("a fixed is renamed", fixed(4), fixed(4, name="G"), False, False),
    ("a fixed is renamed with an alias", fixed(4), fixed(4, name="G", aliases=["F"]), True, False),
    # Arrays and maps.
    ("items widen", array("int"), array("long"), True, False),
    ("items change", array("int"), array("string"), False, False),
    ("values widen", mapping("int"), mapping("double"), True, False),
    ("values become nullable", mapping("int"), mapping(["null", "int"]), True, False),
    ("an array becomes a map", array("int"), mapping("int"), False, False),
    ("an item becomes an array", "int", array("int"), False, False),
    ("items of records get a field with a default",
     array(record(A)), array(record(A, B)), True, True),
    # Unions.
    ("a type becomes a union with it", "string", ["null", "string"], True, False),
    ("a union becomes one of its types", ["null", "string"], "string", False, True),
    ("a branch is added", ["null", "string"], ["null", "string", "int"], True, False),
    ("a branch is removed", ["null", "string", "int"], ["null", "string"], False, True),
    ("branches change places", ["null", "string"], ["string", "null"], True, True),
    ("a branch widens", ["null", "int"], ["null", "long"], True, False),
    ("a branch changes", ["null", "int"], ["null", "string"], False, False),
    ("a union of one is that one", ["int"], "int", True, True),
    ("a union narrows to what reads all of it", ["int", "long"], "double", True, False),
    ("a nullable field is added",
     record(A), record(A, field("n", ["null", "int"], default=None)), True, True),
    ("a nullable field without a default is added",
     record(A), record(A, field("n", ["null", "int"])), False, True),
    ("a field becomes nullable", record(A), record(field("a", ["null", "string"])), True, False),
    ("a union of records gets another", [record(A)], [record(A), record(A, name="S")], True, False),
    ("a record in a union gets a field with a default",
     ["null", record(A)], ["null", record(A, B)], True, True),
    ("a record in a union gets a field without a default",
     ["null", record(A)], ["null", record(A, C)], False, True),
    # Recursion.
    ("a recursive record stays", TREE, TREE, True, True),
    ("a recursive record widens", TREE, WIDE_TREE, True, False),
    ("records that hold each other change behind an alternative",
     in_steps("string"), in_steps("int", ANOTHER), False, False),
    ("a recursive branch goes", TREE, NARROW_TREE, False, True),
]  # fmt: skip
