"""`read_stream` and `read_queue`: fast streams, read in `mapInArrow`.

Spark passes the rows of a Python streaming source one by one. So the source emits only the offset
ranges of each batch, a row per range, and `mapInArrow` fetches and decodes the records: it passes
whole Arrow batches. Offsets, checkpoints, group and schema are the same as with
`readStream.format("penstock")`. Spark's number of input rows counts ranges, so the rows are counted
by an observed metric, which `progress` reads.
"""

from collections.abc import Iterable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import StructType

from penstock.spark.progress import METRIC_PREFIX
from penstock.spark.range_planning import Range
from penstock.spark.settings import ReadSettings, read_settings
from penstock.spark.source.read_offsets import read_selected
from penstock.spark.source.rows import read_all, schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_numbers: Final = count(1)


def read_stream(spark: "SparkSession", **options: Any) -> "DataFrame":
    """Streaming DataFrame of the records; takes the options of `format("penstock")`.

    Pass options with dots in their names as a dict: `read_stream(spark, subscribe="orders",
    **{"kafka.bootstrap.servers": "localhost:9092"})`, or use the alias `brokers=`.
    """
    given = {name: _text(value) for name, value in options.items()}
    settings = read_settings({**given, "emit": "ranges"}, is_streaming=True)
    ranges = spark.readStream.format("penstock").options(**{**given, "emit": "ranges"}).load()
    schema = schema_of(settings.columns)

    def fetch(batches: Iterable[Any]) -> Iterator[Any]:
        return fetch_ranges(settings, schema, batches)

    return ranges.mapInArrow(fetch, schema).observe(_metric_name(settings), _row_count())


def _metric_name(settings: ReadSettings) -> str:
    """Name of the observed metric; unique, because a query may read a topic several times."""
    topics = ",".join(settings.topics)
    return f"{METRIC_PREFIX}{next(_numbers)} {topics or settings.pattern}"


def _row_count() -> Any:
    from pyspark.sql import functions as f

    return f.count(f.lit(1)).alias("rows")


def read_queue(spark: "SparkSession", **options: Any) -> "DataFrame":
    """Streaming DataFrame of a queue's records: `read_queue(spark, queue="jobs", group="etl")`.

    Leases records through the share group, renews them while their batch runs, and acknowledges
    them when it is in the checkpoint; see `queue_stream`.
    """
    return read_stream(spark, **options)


def fetch_ranges(
    settings: ReadSettings, schema: StructType, batches: Iterable[Any]
) -> Iterator[Any]:
    """Fetches the records of every range in `batches`."""
    for batch in batches:
        spans = [
            Range(row["topic"], row["partition"], row["start"], row["end"])
            for row in batch.to_pylist()
        ]
        if settings.is_queue:
            yield from read_selected(settings, schema, spans)
            continue
        yield from read_all(settings, schema, spans)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(str(part) for part in value)
    return str(value)
