"""The job `archive`: topics to Parquet by day, exactly once; small files merged afterwards.

A stream of offset ranges, as `read_stream` has it, whose tasks write files named by their range
(`archives`). The checkpoint says which ranges are planned; a batch that runs again writes the same
files again. Delta and Iceberg have transactions of their own, so there Spark's sink does it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F

from penstock.jobs.archive_layout import (
    Archive,
    ArchiveFile,
    RangeWriter,
    merge,
    plan_merges,
    repair,
)
from penstock.jobs.streaming_query import follow
from penstock.pipelines.error_explanations import reason_of
from penstock.spark.option_values import OptionError
from penstock.spark.range_planning import Range
from penstock.spark.settings import ReadSettings, read_settings
from penstock.spark.source.ranged_stream import read_stream
from penstock.spark.source.rows import read_rows, schema_of

FORMATS: Final = ("parquet", "delta", "iceberg")
ROWS_PER_FILE: Final = 1_000_000
MERGED_BYTES: Final = 128 << 20
SCHEMA: Final = (
    "topic string, date date, partition int, `offset` bigint, timestamp timestamp, "
    "timestampType int, key binary, value binary, headers array<struct<key:string,value:binary>>"
)
_COLUMNS: Final = "topic,partition,offset,timestamp,timestampType,key,value,headers"
_WRITTEN: Final = "topic string, partition int, rows bigint, bytes bigint, files int"


@dataclass(slots=True)
class ArchiveResult:
    """What a run did."""

    rows: int = 0
    bytes: int = 0
    files: int = 0
    merged: int = 0
    """Small files that were made parts of larger ones."""

    def document(self) -> dict[str, int]:
        return {"rows": self.rows, "bytes": self.bytes, "files": self.files, "merged": self.merged}


def archive_topics(
    spark: Any,
    *,
    cluster: Mapping[str, str],
    topics: Sequence[str],
    root: str,
    format: str = "parquet",
    group: str | None = None,
    rows_per_file: int = ROWS_PER_FILE,
    merged_bytes: int = MERGED_BYTES,
    allows_loss: bool = False,
    told: Callable[[int], None] = lambda rows: None,
) -> ArchiveResult:
    """Everything that came since the last run. `told` is called with rows done.

    `allows_loss`: goes on where records were deleted before they could be archived.
    """
    if format not in FORMATS:
        raise OptionError(f"an archive is one of {', '.join(FORMATS)}, not {format!r}")
    options = {
        **cluster,
        "subscribe": ",".join(topics),
        "startingOffsets": "earliest",
        "isolation.level": "read_committed",
        "columns": _COLUMNS,
        "maxRecordsPerPartition": str(rows_per_file),
        "failOnDataLoss": str(not allows_loss).lower(),
        "group": group or f"archive.{'-'.join(sorted(topics))}",
    }
    checkpoint = f"{root.rstrip('/')}/_checkpoints/{'-'.join(sorted(topics))}"
    if format != "parquet":
        return _into_table(spark, options, root, format, checkpoint, told)
    archive = Archive(root)
    repair(archive, topics)
    done = ArchiveResult()
    settings = read_settings({**options, "emit": "ranges"}, is_streaming=True)
    ranges = spark.readStream.format("penstock").options(**options, emit="ranges").load()
    written = ranges.mapInArrow(_file_writer(settings, archive), _WRITTEN).observe(
        "archived",
        F.sum("rows").alias("rows"),
        F.sum("bytes").alias("bytes"),
        F.sum("files").alias("files"),
    )
    query = (
        written.writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )

    def take(metrics: dict[str, int]) -> None:
        done.rows += metrics.get("rows", 0)
        done.bytes += metrics.get("bytes", 0)
        done.files += metrics.get("files", 0)
        told(metrics.get("rows", 0))

    _follow(query, take)
    if merged_bytes:
        done.merged = merge_small(spark, archive, topics, merged_bytes)
    return done


def _file_writer(
    settings: ReadSettings, archive: Archive
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    schema = schema_of(settings.columns)

    def write(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = "0" if context is None else str(context.taskAttemptId())
        for batch in batches:
            for row in batch.to_pylist():
                span = Range(row["topic"], row["partition"], row["start"], row["end"])
                writer = RangeWriter(archive, span.topic, span.partition, (span.start, span.end))
                for records in read_rows(settings, schema, span):
                    writer.add(records, attempt)
                files = writer.finish()
                yield pa.RecordBatch.from_pydict(
                    {
                        "topic": pa.array([span.topic]),
                        "partition": pa.array([span.partition], pa.int32()),
                        "rows": pa.array([writer.rows], pa.int64()),
                        "bytes": pa.array([sum(file.size for file in files)], pa.int64()),
                        "files": pa.array([len(files)], pa.int32()),
                    }
                )

    return write


def _into_table(
    spark: Any,
    options: dict[str, str],
    root: str,
    format: str,
    checkpoint: str,
    told: Callable[[int], None],
) -> ArchiveResult:
    """Through the table format's own sink, which knows which batches it has."""
    done = ArchiveResult()
    rows = (
        read_stream(spark, **options)
        .withColumn("date", F.to_date("timestamp"))
        .observe("archived", F.count(F.lit(1)).alias("rows"))
    )

    def take(metrics: dict[str, int]) -> None:
        done.rows += metrics.get("rows", 0)
        told(metrics.get("rows", 0))

    try:
        query = (
            rows.writeStream.format(format)
            .partitionBy("topic", "date")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start(root)
        )
    except (PySparkException, Py4JJavaError) as error:
        # PySpark has no class of its own for this one, and hands Java's on.
        if "DATA_SOURCE_NOT_FOUND" not in str(error):
            raise
        raise OptionError(
            f"this Spark has no {format}: add its package with --conf spark.jars.packages=..., or "
            "choose --to-format parquet"
        ) from None
    _follow(query, take)
    return done


def _follow(query: Any, take: Callable[[dict[str, int]], None]) -> None:
    try:
        follow(query, "archived", take)
    except StreamingQueryException as error:
        if "DataLoss: " not in str(error):
            raise
        raise OptionError(
            "records were deleted from the topic before they were archived; --allow-loss goes on "
            f"without them ({reason_of(str(error))})"
        ) from None


def merge_small(spark: Any, archive: Archive, topics: Sequence[str], target_bytes: int) -> int:
    """Merges neighbours until files have about this size; how many went into larger ones."""
    merges = [
        parts for topic in topics for parts in plan_merges(archive.files(topic), target_bytes)
    ]
    if not merges:
        return 0

    def work(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            for row in batch.to_pylist():
                merge(archive, merges[row["id"]])
                yield pa.RecordBatch.from_pydict({"id": pa.array([row["id"]], pa.int64())})

    spark.range(len(merges)).repartition(len(merges)).mapInArrow(work, "id bigint").collect()
    return sum(map(len, merges))


def read_archive(spark: Any, root: str, topics: Sequence[str] = ()) -> Any:
    """The records of an archive, with the columns of a topic and `date`."""
    archive = Archive(root)
    if (format := archive.table_format()) is not None:
        raise OptionError(
            f"{root} is a table of {format}: read it with Spark; only archives of Parquet can be "
            "replayed and audited here"
        )
    there = sorted({file.topic for file in archive.files()})
    for topic in topics:
        if topic not in there:
            raise OptionError(
                f"the archive {root} has no topic {topic!r}; it has {', '.join(there) or 'none'}"
            )
    base = root.rstrip("/")
    paths = [f"{base}/topic={topic}" for topic in (topics or there)]
    if not paths:
        raise OptionError(f"{root} is no archive, or an empty one")
    return spark.read.schema(SCHEMA).option("basePath", base).parquet(*paths)


def covered(files: Iterable[ArchiveFile]) -> dict[tuple[str, int], int]:
    """By topic and partition: the offset up to which there are files."""
    ends: dict[tuple[str, int], int] = {}
    for file in files:
        place = (file.topic, file.partition)
        ends[place] = max(ends.get(place, 0), file.end)
    return ends
