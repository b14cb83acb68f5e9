"""`decode` and `encode`: columns of a DataFrame through a schema registry.

    orders = decode(df, subject="orders-value", registry="http://localhost:8080")
    orders.where("error is null").select("data.*")

Both add the column `error`, a struct of class and message, null for a good row: a bad row never
fails the job. `penstock.spark.dead_letters` turns bad rows into dead letters. A row that already
has an error keeps it and is skipped.

The reader's schema is the given `version`, or the subject's latest one when the DataFrame is
created. Each record is read with the schema whose id it carries, and resolved to the reader's.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from penstock.spark.option_values import OptionError, nearest
from penstock.spark.schemas.format import Decode
from penstock.spark.schemas.schema_cache import (
    RegistryAddress,
    SchemaVersion,
    address_of,
    registry_cache,
)
from penstock.spark.schemas.value_columns import decode_cells, encode_cells
from penstock.state.registry.parsed_schemas import Parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
