"""Columns of payloads: every row has an output, a value or an error."""

from typing import Any

import pyarrow as pa

from penstock.spark.schemas.dataframes import decode_cells, encode_cells
from penstock.spark.schemas.format import Decode, Malformed


def frame(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def numbers(payload: bytes) -> int:
    if not payload.isdigit():
        raise Malformed("Malformed", "not a number")
    return int(payload)


def decoder(schema_id: int | None) -> Decode:
    if schema_id not in (None, 1):
        raise Malformed("UnknownSchema", f"schema id {schema_id}")
    return numbers


def decode(*payloads: bytes | None, previous: Any = None, framed: bool = True) -> tuple[Any, Any]:
    values, errors = decode_cells(
        pa.array(payloads, pa.binary()),
        previous or [None] * len(payloads),
        pa.int32(),
        decoder,
        is_framed=framed,
    )
    kinds = [None if error is None else error["class"] for error in errors.to_pylist()]
    return values.to_pylist(), kinds


def test_good_rows_get_values_and_bad_rows_get_errors() -> None:
    found = decode(
        frame(1, b"5"), None, b"", b"5", frame(2, b"5"), frame(1, b"x"), frame(1, b"9" * 30)
    )
    assert found[0] == [5, None, None, None, None, None, None]
    assert found[1] == [
        None,
        None,
        "Unframed",
        "Unframed",
        "UnknownSchema",
        "Malformed",
        "WrongType",
    ]


def test_row_with_an_earlier_error_keeps_it() -> None:
    previous = [{"class": "Earlier", "message": "x"}, None]
    assert decode(frame(1, b"5"), frame(1, b"6"), previous=previous) == (
        [None, 6],
        ["Earlier", None],
    )


def test_unframed_values_are_decoded_by_the_reader_schema() -> None:
    assert decode(b"5", b"x", framed=False) == ([5, None], [None, "Malformed"])


def test_encoded_values_start_with_the_schema_id() -> None:
    def write(value: int) -> bytes:
        if value < 0:
            raise Malformed("Unencodable", "negative")
        return b"%d" % value

    values, errors = encode_cells(pa.array([5, -1, None]), [None] * 3, write, 7)
    assert values.to_pylist() == [frame(7, b"5"), None, None]
    assert [error and error["class"] for error in errors.to_pylist()] == [None, "Unencodable", None]
    bare, _ = encode_cells(pa.array([5]), [None], write, None)
    assert bare.to_pylist() == [b"5"]


def test_error_message_length_is_limited() -> None:
    def fail(payload: bytes) -> int:
        raise Malformed("Malformed", "x" * 5_000)

    _, errors = decode_cells(
        pa.array([b"1"]), [None], pa.int32(), lambda schema_id: fail, is_framed=False
    )
    assert len(errors.to_pylist()[0]["message"]) == 1_000


def test_error_of_a_wrong_type_contains_no_value() -> None:
    values: list[object] = ["a secret", 5, 1 << 80]
    payloads = pa.array([b"0", b"1", b"2"])
    found, errors = decode_cells(
        payloads, [None] * 3, pa.int64(), lambda _: lambda row: values[int(row)], is_framed=False
    )
    assert found.to_pylist() == [None, 5, None]
    messages = [error["message"] for error in errors.to_pylist() if error]
    assert messages[0] == "value of type str: tried to convert to int64"
    assert "secret" not in str(messages)
    assert str(1 << 80) not in str(messages)
