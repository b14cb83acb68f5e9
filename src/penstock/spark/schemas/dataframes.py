"""`decode` and `encode`: DataFrames with a schema registry.

    orders = decode(df, subject="orders-value", registry="http://localhost:8080")
    orders.where("error is null").select("data.*")

Both add the column `error`, a struct of class and message that is null where all is well: a bad row
never fails the job. `penstock.spark.dead_letters` makes dead letters of them. A row that has an
error already keeps it and is not looked at.

The reader's schema is the subject's latest version when the DataFrame is made, or the `version`
that is given; each record is read with the schema whose id it carries, and resolved to that.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from penstock.spark.option_values import OptionError, nearest
from penstock.spark.schemas.format import Decode
from penstock.spark.schemas.schema_cache import RegistryAddress, SchemaVersion, address_of, book_of
from penstock.spark.schemas.value_columns import decode_cells, encode_cells
from penstock.state.registry.parsed_schemas import Parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ERROR_TYPE = StructType([StructField("class", StringType()), StructField("message", StringType())])


@dataclass(frozen=True, slots=True)
class Coding:
    """What tasks need to know; small, and it pickles."""

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
    """The DataFrame with what `column` holds in the column `into`, and `error` where it is bad.

    `version` pins the reader's schema; `message` names one of a Protobuf file that has several;
    `framed=False` reads values without a schema's id in front, by the reader's schema alone.
    """
    _check(frame, column, "binary")
    coding, chosen = _choose(
        subject, registry, version, message, column=column, into=into, error=error, framed=framed
    )
    return _mapped(frame, coding, StructField(into, chosen.form.spark_type), _decode_batches)


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
    """The DataFrame with the struct in `column` written by the schema into the column `into`.

    A column of that name is replaced. Rows that the schema does not take have null there, and say
    why in `error`.
    """
    _check(frame, column, None)
    coding, _ = _choose(
        subject, registry, version, message, column=column, into=into, error=error, framed=framed
    )
    return _mapped(frame, coding, StructField(into, BinaryType()), _encode_batches)


def _choose(
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
    chosen = book_of(address).subject(subject, version, message)
    found = chosen.registered.version
    return Coding(address, subject, found, message, column, into, error, framed), chosen


def _check(frame: "DataFrame", column: str, kind: str | None) -> None:
    names = frame.columns
    if column not in names:
        close = nearest(column, names)
        hint = f"did you mean {close!r}?" if close else f"there are {', '.join(names)}"
        raise OptionError(f"there is no column {column!r}: {hint}")
    found = frame.schema[column].dataType.simpleString()
    if kind is not None and found != kind:
        raise OptionError(f"column {column!r} is {found}, not {kind}")


def _mapped(
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


# In tasks.


@lru_cache(maxsize=64)
def _chosen(coding: Coding) -> SchemaVersion:
    return book_of(coding.address).subject(coding.subject, coding.version, coding.message)


def _decode_batches(coding: Coding, batches: Iterable[Any]) -> Iterator[Any]:
    chosen, book = _chosen(coding), book_of(coding.address)
    kind = to_arrow_type(chosen.form.spark_type, timezone="UTC")
    known: dict[Parsed, Decode] = {}

    def decoder(schema_id: int | None) -> Decode:
        writer = chosen.parsed if schema_id is None else book.schema(schema_id)
        if writer not in known:
            known[writer] = chosen.form.decoder(writer)
        return known[writer]

    for batch in batches:
        found = decode_cells(
            batch.column(coding.column),
            _earlier(batch, coding.error),
            kind,
            decoder,
            is_framed=coding.is_framed,
        )
        yield _with(batch, coding, *found)


def _encode_batches(coding: Coding, batches: Iterable[Any]) -> Iterator[Any]:
    chosen = _chosen(coding)
    write = chosen.form.encoder()
    schema_id = chosen.registered.id if coding.is_framed else None
    for batch in batches:
        earlier = _earlier(batch, coding.error)
        found = encode_cells(batch.column(coding.column), earlier, write, schema_id)
        yield _with(batch, coding, *found)


def _earlier(batch: Any, error: str) -> list[Any]:
    if error in batch.schema.names:
        earlier: list[Any] = batch.column(error).to_pylist()
        return earlier
    return [None] * batch.num_rows


def _with(batch: Any, coding: Coding, values: Any, errors: Any) -> Any:
    import pyarrow as pa

    names = [one for one in batch.schema.names if one not in (coding.into, coding.error)]
    arrays = [*(batch.column(name) for name in names), values, errors]
    return pa.RecordBatch.from_arrays(arrays, names=[*names, coding.into, coding.error])
