"""Job `archive`: copies topics to Parquet by day, exactly once, and merges small files.

A stream of offset ranges, as in `read_stream`, whose tasks write files named by their range.
The checkpoint holds the planned ranges; a repeated batch writes the same files
again. Delta and Iceberg tables are written by `pipelines.lakehouse`, in batches through the driver.

Layout and file names of an archive. Independent of Spark.

    <root>/topic=orders/date=2026-11-16/p00003-00000000000000001000-00000000000000002000.parquet

A file holds the records of one partition and day from the first offset (inclusive) to the second
(exclusive), in order. So a repeated task writes the same file again, and a listing of the folder
shows the archived offsets. Parquet readers skip names that begin with `_`.

Merging small files: the merged file is written with the prefix `_merged-`, then the small files are
deleted, then the prefix is removed. `repair` finishes an interrupted merge, and deletes a file
within the range of another one, which a straggling task wrote after the merge, and unfinished files
of killed tasks (`_writing-`, `_merging-`). Only one job at a time may work on a topic.

Bounds: at most `OPEN_FILES_MAX` open files; a range with more days writes several files per day.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs as filesystems
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from penstock.pipelines.checkpoints import end_offsets
from penstock.pipelines.endpoints import DeltaTable, IcebergTable, PipelineError
from penstock.pipelines.error_explanations import reason_of
from penstock.pipelines.lakehouse import check_target, count_rows, write_batch
from penstock.spark.connection import blocking_client
from penstock.spark.option_values import OptionError
from penstock.spark.range_planning import Range, replaced_topics, topic_ids_of
from penstock.spark.settings import ReadSettings, read_settings
from penstock.spark.sink.upsert import query_id_of
from penstock.spark.source.ranged_stream import read_stream
from penstock.spark.source.rows import read_rows, schema_of
from penstock.spark.topics import known_topic_ids, partitions_to_read

COLUMNS: Final = ("partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
"""Columns of a file; topic and date are in its path."""
CODEC: Final = "zstd"
OPEN_FILES_MAX: Final = 64
MERGED: Final = "_merged-"
MERGING: Final = "_merging-"
_WRITING: Final = "_writing-"
_SUFFIX: Final = ".parquet"
_CATALOG: Final = "_catalog.db"
_TABLE_LOGS: Final = (("Delta", "_delta_log"), ("Iceberg", _CATALOG), ("Iceberg", "metadata"))
"""Files and folders by which a table is recognized; the last one is of other writers."""


class ArchiveFile(NamedTuple):
    """File of an archive, as encoded in its path."""

    topic: str
    date: str
    partition: int
    start: int
    end: int
    part: int
    """0, or the number of a further file for the same range and day."""
    path: str = ""
    size: int = 0

    @property
    def folder(self) -> str:
        return f"topic={self.topic}/date={self.date}"

    @property
    def name(self) -> str:
        part = f"-{self.part}" if self.part else ""
        return f"p{self.partition:05}-{self.start:020}-{self.end:020}{part}{_SUFFIX}"

    def is_within(self, other: "ArchiveFile") -> bool:
        same = self[:3] == other[:3] and self.part == 0 and other.part == 0
        inside = other.start <= self.start and self.end <= other.end
        return same and inside and (self.start, self.end) != (other.start, other.end)


@dataclass(frozen=True, slots=True)
class Archive:
    """Folder on the file system of its URI or path."""

    root: str

    def system(self) -> tuple[Any, str]:
        """File system, and the path of the root on it."""
        if "://" in self.root:
            found, path = filesystems.FileSystem.from_uri(self.root)
            return found, path.rstrip("/")
        return filesystems.LocalFileSystem(), self.root.rstrip("/")

    def files(self, topic: str | None = None) -> list[ArchiveFile]:
        """All files of the archive, or of one topic, sorted."""
        return [one for one in self._listed(topic) if one.path.rsplit("/", 1)[-1][0] != "_"]

    def table_format(self) -> str | None:
        """Table format that owns the folder (detected by its log); None for an archive."""
        system, path = self.system()
        for name, log in _TABLE_LOGS:
            if system.get_file_info(f"{path}/{log}").type != filesystems.FileType.NotFound:
                return name
        return None

    def unfinished(self, topic: str) -> list[ArchiveFile]:
        """Merged files whose parts may not be deleted yet."""
        return [one for one in self._listed(topic) if f"/{MERGED}" in one.path]

    def begun(self, topic: str) -> list[str]:
        """Paths of files that a task has started and not finished."""
        paths = [info.path for info in self._infos(topic)]
        return [path for path in paths if path.rsplit("/", 1)[-1].startswith((_WRITING, MERGING))]

    def _listed(self, topic: str | None) -> list[ArchiveFile]:
        found = [parse(info.path, info.size) for info in self._infos(topic)]
        return sorted(one for one in found if one is not None)

    def _infos(self, topic: str | None) -> list[Any]:
        system, path = self.system()
        below = path if topic is None else f"{path}/topic={topic}"
        selector = filesystems.FileSelector(below, recursive=True, allow_not_found=True)
        infos = system.get_file_info(selector)
        return [info for info in infos if info.type == filesystems.FileType.File]


def parse(path: str, size: int = 0) -> ArchiveFile | None:
    """Parses the path of an archive file; None for any other path."""
    parts = PurePosixPath(path).parts
    if len(parts) < 3 or not path.endswith(_SUFFIX):
        return None
    topic, date, name = parts[-3], parts[-2], parts[-1]
    if not (topic.startswith("topic=") and date.startswith("date=")):
        return None
    numbers = name.removeprefix(MERGED).removeprefix("p").removesuffix(_SUFFIX).split("-")
    if not 3 <= len(numbers) <= 4 or not all(number.isdecimal() for number in numbers):
        return None
    partition, start, end, *rest = map(int, numbers)
    return ArchiveFile(topic[6:], date[5:], partition, start, end, sum(rest), path, size)


# -- writing ----------------------------------------------------------------------------------


class RangeWriter:
    """Writes the records of one range, one file per day; all become visible with `finish`."""

    def __init__(self, archive: Archive, topic: str, partition: int, span: tuple[int, int]) -> None:
        self._system, self._root = archive.system()
        self._about = (topic, partition, span)
        self._open: dict[str, tuple[ArchiveFile, str, Any]] = {}
        self._parts: dict[str, int] = {}
        self._closed: list[tuple[ArchiveFile, str]] = []
        self.rows = 0

    def add(self, batch: Any, attempt: str) -> None:
        """Adds records; `attempt` distinguishes tasks that write the same range concurrently."""
        days = pc.strftime(batch.column("timestamp").cast(pa.timestamp("us", "UTC")), "%Y-%m-%d")
        self.rows += batch.num_rows
        columns = batch.select(list(COLUMNS))
        for day in pc.unique(days).to_pylist():
            self._writer(day, columns.schema, attempt).write_batch(
                columns.filter(pc.equal(days, day))
            )

    def finish(self) -> list[ArchiveFile]:
        """Renames all files to their final names, which adds them to the archive."""
        while self._open:
            self._close(next(iter(self._open)))
        done = []
        for one, temporary in self._closed:
            final = f"{self._root}/{one.folder}/{one.name}"
            self._system.move(temporary, final)
            done.append(one._replace(path=final, size=self._system.get_file_info(final).size))
        return done

    def _writer(self, day: str, schema: Any, attempt: str) -> Any:
        if day not in self._open:
            if len(self._open) >= OPEN_FILES_MAX:
                self._close(next(iter(self._open)))
            topic, partition, (start, end) = self._about
            part = self._parts.get(day, 0)
            self._parts[day] = part + 1
            one = ArchiveFile(topic, day, partition, start, end, part)
            self._system.create_dir(f"{self._root}/{one.folder}", recursive=True)
            temporary = f"{self._root}/{one.folder}/{_WRITING}{attempt}-{one.name}"
            writer = pq.ParquetWriter(temporary, schema, filesystem=self._system, compression=CODEC)
            self._open[day] = one, temporary, writer
        return self._open[day][2]

    def _close(self, day: str) -> None:
        one, temporary, writer = self._open.pop(day)
        writer.close()
        self._closed.append((one, temporary))


# -- merging ----------------------------------------------------------------------------------


def plan_merges(files: Iterable[ArchiveFile], target_bytes: int) -> list[list[ArchiveFile]]:
    """Runs of adjacent files of one partition and day that merge to about the target size."""
    merges: list[list[ArchiveFile]] = []
    run: list[ArchiveFile] = []
    for one in sorted(files):
        if one.size >= target_bytes or one.part:
            run = _end_run(merges, run)
            continue
        if run and (one[:3] != run[0][:3] or sum(f.size for f in run) + one.size > target_bytes):
            run = _end_run(merges, run)
        run.append(one)
    _end_run(merges, run)
    return merges


def _end_run(merges: list[list[ArchiveFile]], run: list[ArchiveFile]) -> list[ArchiveFile]:
    if len(run) > 1:
        merges.append(run)
    return []


def merge(archive: Archive, parts: Sequence[ArchiveFile]) -> ArchiveFile:
    """Merges files into one."""
    system, root = archive.system()
    whole = parts[0]._replace(end=parts[-1].end, path="", size=0)
    folder = f"{root}/{whole.folder}"
    temporary, ready = f"{folder}/{MERGING}{whole.name}", f"{folder}/{MERGED}{whole.name}"
    writer = None
    for part in parts:
        with system.open_input_file(part.path) as source:
            for batch in pq.ParquetFile(source).iter_batches():
                if writer is None:
                    writer = pq.ParquetWriter(
                        temporary, batch.schema, filesystem=system, compression=CODEC
                    )
                writer.write_batch(batch)
    assert writer is not None
    writer.close()
    system.move(temporary, ready)
    return finish_merge(archive, whole._replace(path=ready))


def finish_merge(archive: Archive, ready: ArchiveFile) -> ArchiveFile:
    """Deletes the files that a merged file replaces, then renames it to its final name."""
    system, root = archive.system()
    for one in archive.files(ready.topic):
        if one.is_within(ready):
            system.delete_file(one.path)
    final = f"{root}/{ready.folder}/{ready.name}"
    system.move(ready.path, final)
    return ready._replace(path=final, size=system.get_file_info(final).size)


def repair(archive: Archive, topics: Iterable[str]) -> int:
    """Finishes interrupted merges, and deletes files left by killed and straggling tasks.

    Returns the number of repaired files.
    """
    count = 0
    system, _ = archive.system()
    for topic in topics:
        for ready in archive.unfinished(topic):
            finish_merge(archive, ready)
            count += 1
        left = [one.path for one in superseded(archive.files(topic))]
        for path in (*left, *archive.begun(topic)):
            with contextlib.suppress(FileNotFoundError):
                system.delete_file(path)
            count += 1
    return count


def superseded(files: Sequence[ArchiveFile]) -> Iterator[ArchiveFile]:
    """Files within the range of another file of the same day."""
    widest: ArchiveFile | None = None
    for one in sorted(files, key=lambda file: (*file[:4], -file.end)):
        if widest is not None and one.is_within(widest):
            yield one
        elif widest is None or one[:3] != widest[:3] or one.end > widest.end:
            widest = one


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
TABLE_BATCH_ROWS: Final = 200_000
"""Maximum records of a batch that the driver writes to a table."""
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
    target = None if format == "parquet" else table_of(root, format)
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
    if target is not None:
        return _archive_to_table(spark, options, target, checkpoint, on_progress)
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
    target: DeltaTable | IcebergTable,
    checkpoint: str,
    on_progress: Callable[[int], None],
) -> ArchiveResult:
    """Archives to a table, which knows the batches that it has; counts its rows at the end."""
    if not hasattr(spark, "sparkContext"):
        raise OptionError(
            f"the target {target} needs a session with --master: Spark Connect does not provide "
            "the query id of a batch"
        )
    try:
        check_target(target, "archive")
    except PipelineError as error:
        raise OptionError(str(error)) from None
    before = count_rows(target)
    done = ArchiveResult()

    def write(batch: Any, number: int) -> None:
        rows = write_batch(target, batch, number, query_id_of(batch))
        done.rows += rows
        on_progress(rows)

    limited = {**options, "maxOffsetsPerTrigger": str(TABLE_BATCH_ROWS)}
    rows = read_stream(spark, **limited).withColumn("date", F.to_date("timestamp"))
    query = (
        rows.writeStream.foreachBatch(write)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    _follow_query(query, lambda metrics: None)
    found = count_rows(target) - before
    if found != done.rows:
        raise OptionError(
            f"{target} has {found} more rows than before, but {done.rows} were written: does "
            "another job write to it?"
        )
    return done


def table_of(root: str, format: str) -> DeltaTable | IcebergTable:
    """Table of an archive; one of Iceberg has its catalog in a file beside the data."""
    if format == "delta":
        return DeltaTable(root, partition_by=("topic", "date"))
    if "://" in root:
        raise OptionError(
            f"--to-format iceberg keeps its catalog in the archive's folder, which must be a path, "
            f"not {root!r}: for an object store load an IcebergTable with a catalog in a pipeline"
        )
    folder = os.path.abspath(root)
    os.makedirs(folder, exist_ok=True)
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/{_CATALOG}",
        "warehouse": f"file://{folder}",
    }
    return IcebergTable("archive.records", catalog, partition_by=("topic", "date"))


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
