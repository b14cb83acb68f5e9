"""Conversion of Arrow columns between payloads and values, with a column of errors.

Every input row has an output row, with a value or with an error. Payloads have Confluent's frame: a
zero byte, the schema id in four bytes, then the payload of the format.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from penstock.spark.schemas.format import Decode, Encode, Malformed

MAGIC: Final = 0
FRAME_BYTES: Final = 5
MESSAGE_CHARS_MAX: Final = 1_000
ERROR: Final = pa.struct([pa.field("class", pa.string()), pa.field("message", pa.string())])
"""Type of a row's error; null for a good row."""

_ARROW = (pa.ArrowException, TypeError, ValueError, OverflowError)


class ColumnBuilder:
    """Builds one column of values and one of errors, row by row."""

    def __init__(self, earlier: Sequence[dict[str, str] | None]) -> None:
        self.values: list[Any] = []
        self.errors: list[dict[str, str] | None] = list(earlier)

    def take(self, cells: Sequence[Any], work: Callable[[Any], Any]) -> None:
        """Converts every cell that is not null, in rows that have no error yet."""
        values, errors = self.values, self.errors
        for row, cell in enumerate(cells):
            if cell is None or errors[row] is not None:
                values.append(None)
                continue
            try:
                values.append(work(cell))
            except Malformed as error:
                values.append(None)
                errors[row] = _error(error.kind, str(error))

    def finish(self, kind: Any) -> tuple[Any, Any]:
        """Both Arrow columns. A value that Arrow rejects becomes an error as well."""
        try:
            found = pa.array(self.values, kind)
        except _ARROW:
            for row, value in enumerate(self.values):
                try:
                    pa.array([value], kind)
                except _ARROW as error:
                    self.values[row] = None
                    self.errors[row] = _error("WrongType", " ".join(str(error).split()))
            found = pa.array(self.values, kind)
        return found, pa.array(self.errors, ERROR)


def decode_cells(
    payloads: Any,
    earlier: Sequence[dict[str, str] | None],
    kind: Any,
    decoder: Callable[[int | None], Decode],
    *,
    is_framed: bool,
) -> tuple[Any, Any]:
    """Decodes to values and errors. `decoder` returns a schema id's function; None: unframed."""
    decoders: dict[bytes, Decode] = {}

    def decode(payload: bytes) -> Any:
        head = payload[:FRAME_BYTES]
        known = decoders.get(head)
        if known is None:
            if len(payload) < FRAME_BYTES or payload[0] != MAGIC:
                raise Malformed("Unframed", "value does not start with a schema id")
            known = decoders[head] = decoder(int.from_bytes(head[1:], "big"))
        return known(payload[FRAME_BYTES:])

    builder = ColumnBuilder(earlier)
    builder.take(payloads.to_pylist(), decode if is_framed else decoder(None))
    return builder.finish(kind)


def encode_cells(
    values: Any,
    earlier: Sequence[dict[str, str] | None],
    encode: Encode,
    schema_id: int | None,
) -> tuple[Any, Any]:
    """Encodes to payloads and errors."""
    head = b"" if schema_id is None else bytes([MAGIC]) + schema_id.to_bytes(4, "big")
    builder = ColumnBuilder(earlier)
    builder.take(values.to_pylist(), lambda value: head + encode(value))
    return builder.finish(pa.binary())


def _error(kind: str, message: str) -> dict[str, str]:
    return {"class": kind, "message": message[:MESSAGE_CHARS_MAX]}
