"""`decode` and `encode`: columns of a DataFrame through a schema registry.

    orders = decode(df, subject="orders-value", registry="http://localhost:8080")
    orders.where("error is null").select("data.*")

Both add the column `error`, a struct of class and message, null for a good row: a bad row never
fails the job. `penstock.spark.dead_letters` turns bad rows into dead letters. A row that already
has an error keeps it and is skipped.

The reader's schema is the given `version`, or the subject's latest one when the DataFrame is
created. Each record is read with the schema whose id it carries, and resolved to the reader's.

Conversion of Arrow columns between payloads and values, with a column of errors. Every input row
has an output row, with a value or with an error. Payloads have Confluent's frame: a zero byte,
the schema id in four bytes, then the payload of the format.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from penstock.spark.option_values import OptionError, nearest
from penstock.spark.schemas.format import Decode, Encode, Malformed, reason_of
from penstock.spark.schemas.schema_cache import (
    RegistryAddress,
    SchemaVersion,
    address_of,
    registry_cache,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.state.registry.parsed_schemas import Parsed


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
                    self.errors[row] = _error("WrongType", reason_of(error))
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


ERROR_TYPE = StructType([StructField("class", StringType()), StructField("message", StringType())])


@dataclass(frozen=True, slots=True)
class Coding:
    """Parameters of the tasks; small and picklable."""

    address: RegistryAddress
    subject: str
    version: int | None
    message: str | None
    column: str
    into: str
    error: str
    is_framed: bool


def decode(
    frame: "DataFrame",
    *,
    subject: str,
    registry: str | RegistryAddress,
    column: str = "value",
    into: str = "data",
    error: str = "error",
    version: int | None = None,
    message: str | None = None,
    framed: bool = True,
) -> "DataFrame":
    """Decodes `column` into the column `into`, with `error` set for a bad row.

    `version` pins the reader's schema. `message` selects one of several messages in a Protobuf
    file. `framed=False` reads values without a leading schema id, by the reader's schema alone.
    """
    _check(frame, column, "binary")
    coding, chosen = _find_version(
        subject, registry, version, message, column=column, into=into, error=error, framed=framed
    )
    return _map_in_arrow(frame, coding, StructField(into, chosen.codec.spark_type), _decode_batches)


def encode(
    frame: "DataFrame",
    *,
    subject: str,
    registry: str | RegistryAddress,
    column: str = "data",
    into: str = "value",
    error: str = "error",
    version: int | None = None,
    message: str | None = None,
    framed: bool = True,
) -> "DataFrame":
    """Encodes the struct in `column` by the schema into the column `into`.

    Replaces an existing column of that name. A row that does not match the schema gets null there,
    and the reason in `error`.
    """
    _check(frame, column, None)
    coding, _ = _find_version(
        subject, registry, version, message, column=column, into=into, error=error, framed=framed
    )
    return _map_in_arrow(frame, coding, StructField(into, BinaryType()), _encode_batches)


def _find_version(
    subject: str,
    registry: str | RegistryAddress,
    version: int | None,
    message: str | None,
    *,
    column: str,
    into: str,
    error: str,
    framed: bool,
) -> tuple[Coding, SchemaVersion]:
    address = address_of(registry)
    chosen = registry_cache(address).subject(subject, version, message)
    found = chosen.registered.version
    return Coding(address, subject, found, message, column, into, error, framed), chosen


def _check(frame: "DataFrame", column: str, kind: str | None) -> None:
    names = frame.columns
    if column not in names:
        close = nearest(column, names)
        hint = f"did you mean {close!r}?" if close else f"columns: {', '.join(names)}"
        raise OptionError(f"unknown column {column!r}: {hint}")
    found = frame.schema[column].dataType.simpleString()
    if kind is not None and found != kind:
        raise OptionError(f"column {column!r} must be {kind}, not {found}")


def _map_in_arrow(
    frame: "DataFrame",
    coding: Coding,
    added: StructField,
    work: Callable[[Coding, Iterable[Any]], Iterator[Any]],
) -> "DataFrame":
    given = [one for one in frame.schema.fields if one.name not in (coding.into, coding.error)]
    schema = StructType([*given, added, StructField(coding.error, ERROR_TYPE)])

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        return work(coding, batches)

    return frame.mapInArrow(run, schema)


# Run in tasks.


@lru_cache(maxsize=64)
def _schema_version(coding: Coding) -> SchemaVersion:
    return registry_cache(coding.address).subject(coding.subject, coding.version, coding.message)


def _decode_batches(coding: Coding, batches: Iterable[Any]) -> Iterator[Any]:
    chosen, cache = _schema_version(coding), registry_cache(coding.address)
    kind = to_arrow_type(chosen.codec.spark_type, timezone="UTC")
    known: dict[Parsed, Decode] = {}

    def decoder(schema_id: int | None) -> Decode:
        writer = chosen.parsed if schema_id is None else cache.schema(schema_id)
        if writer not in known:
            known[writer] = chosen.codec.decoder(writer)
        return known[writer]

    for batch in batches:
        found = decode_cells(
            batch.column(coding.column),
            _previous_errors(batch, coding.error),
            kind,
            decoder,
            is_framed=coding.is_framed,
        )
        yield _with_columns(batch, coding, *found)


def _encode_batches(coding: Coding, batches: Iterable[Any]) -> Iterator[Any]:
    chosen = _schema_version(coding)
    write = chosen.codec.encoder()
    schema_id = chosen.registered.id if coding.is_framed else None
    for batch in batches:
        earlier = _previous_errors(batch, coding.error)
        found = encode_cells(batch.column(coding.column), earlier, write, schema_id)
        yield _with_columns(batch, coding, *found)


def _previous_errors(batch: Any, error: str) -> list[Any]:
    if error in batch.schema.names:
        earlier: list[Any] = batch.column(error).to_pylist()
        return earlier
    return [None] * batch.num_rows


def _with_columns(batch: Any, coding: Coding, values: Any, errors: Any) -> Any:
    import pyarrow as pa

    names = [one for one in batch.schema.names if one not in (coding.into, coding.error)]
    arrays = [*(batch.column(name) for name in names), values, errors]
    return pa.RecordBatch.from_arrays(arrays, names=[*names, coding.into, coding.error])
