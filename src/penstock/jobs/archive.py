"""Job `archive`: copies topics to Parquet by day, exactly once, and merges small files.

A stream of offset ranges, as in `read_stream`, whose tasks write files named by their range
(`archive_layout`). The checkpoint holds the planned ranges; a repeated batch writes the same files
again. Delta and Iceberg have their own transactions, so Spark's sink writes those.

Follows a streaming query to its end and reports the observed metrics of every batch.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F

from penstock.jobs.archive_layout import Archive, RangeWriter, merge, plan_merges, repair
from penstock.pipelines.checkpoints import end_offsets
from penstock.pipelines.error_explanations import reason_of
from penstock.spark.connection import blocking_client
from penstock.spark.option_values import OptionError
from penstock.spark.range_planning import Range, replaced_topics, topic_ids_of
from penstock.spark.settings import ReadSettings, read_settings
from penstock.spark.source.ranged_stream import read_stream
from penstock.spark.source.rows import read_rows, schema_of
from penstock.spark.topics import known_topic_ids, partitions_to_read

POLL_S: Final = 0.2


def follow(query: Any, metric: str, take: Callable[[dict[str, int]], None]) -> None:
    """Calls `take` once per batch. Raises the exception that ended the query, if any."""
    seen: set[int] = set()

    def look() -> None:
        for event in query.recentProgress:
            observed = (event["observedMetrics"] or {}).get(metric)
            if observed is None or event["batchId"] in seen:
                continue
            values = observed if isinstance(observed, dict) else observed.asDict()
            numbers = {name: int(value or 0) for name, value in values.items()}
            if any(numbers.values()):
                seen.add(event["batchId"])
                take(numbers)

    try:
        while query.isActive:
            look()
            time.sleep(POLL_S)
        look()
    finally:
        query.stop()
    query.awaitTermination()


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
    """Result of a run."""

    rows: int = 0
    bytes: int = 0
    files: int = 0
    merged: int = 0
    """Small files that were merged into larger ones."""

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
    on_progress: Callable[[int], None] = lambda rows: None,
) -> ArchiveResult:
    """Archives all records since the last run. `on_progress` gets the number of archived rows.

    `allows_loss`: continues if records were deleted before they were archived.
    """
    if format not in FORMATS:
        raise OptionError(f"format must be one of {', '.join(FORMATS)}, not {format!r}")
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
    _refuse_replaced_topics(checkpoint, read_settings(options, is_streaming=True), root)
    if format != "parquet":
        return _archive_to_table(spark, options, root, format, checkpoint, on_progress)
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
        on_progress(metrics.get("rows", 0))

    _follow_query(query, take)
    if merged_bytes:
        done.merged = merge_small(spark, archive, topics, merged_bytes)
    return done


def _refuse_replaced_topics(checkpoint: str, settings: ReadSettings, root: str) -> None:
    """Refuses a topic that was created again: its files would replace those of the old one."""
    end = end_offsets(checkpoint)
    if end is None:
        return
    client = blocking_client(settings.access)

    async def look() -> dict[str, str]:
        await partitions_to_read(client.cluster, settings)
        return known_topic_ids(client.cluster, settings.topics)

    replaced = replaced_topics(topic_ids_of(json.loads(end)), client.retry(look))
    if replaced:
        raise OptionError(
            f"topic {min(replaced)!r} was deleted and created again since it was archived to "
            f"{root}: archive the new topic to another folder"
        )


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


def _archive_to_table(
    spark: Any,
    options: dict[str, str],
    root: str,
    format: str,
    checkpoint: str,
    on_progress: Callable[[int], None],
) -> ArchiveResult:
    """Archives through the table format's sink, which skips batches that it already has."""
    done = ArchiveResult()
    rows = (
        read_stream(spark, **options)
        .withColumn("date", F.to_date("timestamp"))
        .observe("archived", F.count(F.lit(1)).alias("rows"))
    )

    def take(metrics: dict[str, int]) -> None:
        done.rows += metrics.get("rows", 0)
        on_progress(metrics.get("rows", 0))

    try:
        query = (
            rows.writeStream.format(format)
            .partitionBy("topic", "date")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start(root)
        )
    except (PySparkException, Py4JJavaError) as error:
        # PySpark has no exception class for this error and passes Java's on.
        if "DATA_SOURCE_NOT_FOUND" not in str(error):
            raise
        raise OptionError(
            f"Spark lacks the format {format}: add its package with "
            "--conf spark.jars.packages=..., or choose --to-format parquet"
        ) from None
    _follow_query(query, take)
    return done


def _follow_query(query: Any, take: Callable[[dict[str, int]], None]) -> None:
    try:
        follow(query, "archived", take)
    except StreamingQueryException as error:
        if "DataLoss: " not in str(error):
            raise
        raise OptionError(
            "records were deleted from the topic before they were archived; pass --allow-loss to "
            f"continue without them ({reason_of(str(error))})"
        ) from None


def merge_small(spark: Any, archive: Archive, topics: Sequence[str], target_bytes: int) -> int:
    """Merges adjacent files up to about the target size; returns the number of merged files."""
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
    """Records of an archive, with the columns of a topic and `date`."""
    archive = Archive(root)
    if (format := archive.table_format()) is not None:
        raise OptionError(
            f"{root} is a table of {format}; replay and audit need an archive in Parquet: read "
            "this one with Spark"
        )
    there = sorted({file.topic for file in archive.files()})
    for topic in topics:
        if topic not in there:
            raise OptionError(
                f"archive {root} has no topic {topic!r}; topics: {', '.join(there) or 'none'}"
            )
    base = root.rstrip("/")
    paths = [f"{base}/topic={topic}" for topic in (topics or there)]
    if not paths:
        raise OptionError(f"{root} is empty or not an archive")
    return spark.read.schema(SCHEMA).option("basePath", base).parquet(*paths)
