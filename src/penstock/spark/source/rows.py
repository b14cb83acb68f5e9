"""Rows of a read: their schema, and the Arrow batches of ranges. Run by tasks of all kinds."""

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.spark.option_values import OptionError, nearest
from penstock.spark.range_planning import Range
from penstock.spark.settings import COLUMNS, HEADERS, ReadSettings

RANGES_SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("start", LongType()),
        StructField("end", LongType()),
    ]
)

_TYPES = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}


_PREFETCHED_RANGES_MAX = 8
"""Maximum ranges of a task that are fetched concurrently."""


class RangePartition(InputPartition):  # type: ignore[misc]
    """Ranges of one task."""

    def __init__(self, spans: Sequence[Range]) -> None:
        super().__init__(None)
        self.spans = tuple(spans)


def schema_of(columns: Sequence[str]) -> StructType:
    """Schema of these columns, created without a call to the JVM."""
    return StructType([StructField(name, _TYPES[name]) for name in columns])


def check_schema(schema: StructType, settings: ReadSettings) -> None:
    """Refuses a user's schema that the source cannot provide."""
    if settings.emits_ranges:
        return
    for field in schema.fields:
        expected = _TYPES.get(field.name)
        if expected is None:
            close = nearest(field.name, _TYPES)
            hint = f"did you mean {close!r}?" if close else f"columns: {', '.join(COLUMNS)}"
            raise OptionError(f"unknown column {field.name!r}; {hint}")
        found, right = field.dataType.simpleString(), expected.simpleString()
        if found != right:
            raise OptionError(
                f"column {field.name!r} must be {right}, not {found}; cast it after the read"
            )


def read_all(settings: ReadSettings, schema: StructType, spans: Sequence[Range]) -> Iterator[Any]:
    """Arrow batches of ranges, one after the other, with the next ones prefetched."""
    # Imported only in tasks: every process that Spark starts imports this module.
    from penstock.spark.connection import blocking_client
    from penstock.spark.source.arrow import ArrowDecoder
    from penstock.spark.source.range_reader import RangeReader

    shape = ArrowDecoder(to_arrow_schema(schema, timezone="UTC"))
    client = blocking_client(settings.access)
    readers = [
        RangeReader(
            client,
            span,
            fetch_bytes=settings.fetch_bytes,
            isolation_level=settings.isolation_level,
            fails=settings.fail_on_data_loss,
        )
        for span in spans
    ]
    try:
        for index, span in enumerate(spans):
            for reader in readers[index : index + _PREFETCHED_RANGES_MAX]:
                reader.prefetch()
            for fetched in readers[index].chunks():
                yield from shape.batches(fetched, span)
    finally:
        for reader in readers:
            reader.stop()


def read_rows(settings: ReadSettings, schema: StructType, span: Range) -> Iterator[Any]:
    """Arrow batches of one range."""
    return read_all(settings, schema, (span,))
