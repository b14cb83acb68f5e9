"""`read_stream`: a stream that is read in `mapInArrow`, for speed.

Spark hands the rows of a Python streaming source over one by one. So the source emits only the
offset ranges of each batch, a row per task, and the records are fetched and decoded in
`mapInArrow`, which passes Arrow batches on whole. Offsets, checkpoints and group are the same as
with `readStream.format("penstock")`, and so is the schema.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from penstock.spark.range_planning import Range
from penstock.spark.settings import ReadSettings, read_settings
from penstock.spark.source.read_offsets import read_picked
from penstock.spark.source.rows import read_all, schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_stream(spark: "SparkSession", **options: Any) -> "DataFrame":
    """A streaming DataFrame of the records; options as of `format("penstock")`.

    Options whose names have dots are given in a dict: `read_stream(spark, subscribe="orders",
    **{"kafka.bootstrap.servers": "localhost:9092"})`; `brokers=` does as well.
    """
    given = {name: _text(value) for name, value in options.items()}
    settings = read_settings({**given, "emit": "ranges"}, is_streaming=True)
    ranges = spark.readStream.format("penstock").options(**{**given, "emit": "ranges"}).load()
    schema = schema_of(settings.columns)

    def fetch(batches: Iterable[Any]) -> Iterator[Any]:
        return fetch_ranges(settings, schema, batches)

    return ranges.mapInArrow(fetch, schema)


def read_queue(spark: "SparkSession", **options: Any) -> "DataFrame":
    """A streaming DataFrame of a queue's records: `read_queue(spark, queue="jobs", group="etl")`.

    Records are leased through the share group, renewed while their batch runs, and acknowledged
    when it is in the checkpoint; see `queue_stream`.
    """
    return read_stream(spark, **options)


def fetch_ranges(
    settings: ReadSettings, schema: StructType, batches: Iterable[Any]
) -> Iterator[Any]:
    """The records of every range that comes in."""
    for batch in batches:
        spans = [
            Range(row["topic"], row["partition"], row["start"], row["end"])
            for row in batch.to_pylist()
        ]
        if settings.is_queue:
            yield from read_picked(settings, schema, spans)
            continue
        yield from read_all(settings, schema, spans)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(str(part) for part in value)
    return str(value)
