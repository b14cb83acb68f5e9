"""Data source `penstock`, the factory of readers and writers; also batch reads.

Spark calls `reader` in its planner and sends the reader to the tasks, so readers hold only
settings. The schema is that of Spark's Kafka source. Spark does not prune columns of Python
sources: the option `columns`, or the user's schema, selects the decoded ones.

Spark pushes filters only if the user sets `spark.sql.python.filterPushdown.enabled`. It refuses a
reader with `pushFilters` while the setting is off, so there are two classes.

Every process that Spark starts imports this module, so it imports optional parts inside functions.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from penstock.client.cluster import Cluster
from penstock.client.list_offsets import list_offsets
from penstock.client.metadata import TopicPartition
from penstock.spark.connection import blocking_client
from penstock.spark.range_planning import Range, plan, ranges_between
from penstock.spark.settings import ReadSettings, read_settings, selected_columns, write_settings
from penstock.spark.source.filters import RangeFilter
from penstock.spark.source.rows import (
    RANGES_SCHEMA,
    RangePartition,
    check_schema,
    read_all,
    schema_of,
)
from penstock.spark.source.start_and_end import resolve
from penstock.spark.topics import partitions_to_read

_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class PenstockDataSource(DataSource):  # type: ignore[misc]
    """`spark.read.format("penstock")`, `readStream`, `write`, `writeStream`."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        columns = selected_columns(self.options)
        return RANGES_SCHEMA if columns is None else schema_of(columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        settings = read_settings(self.options, is_streaming=False)
        check_schema(schema, settings)
        # Spark runs this module only if filters may be pushed, in a separate process.
        if _PUSHDOWN_WORKER in sys.modules:
            return FilteredReader(settings, schema)
        return BatchReader(settings, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        settings = read_settings(self.options, is_streaming=True)
        check_schema(schema, settings)
        if settings.is_queue:
            from penstock.spark.source.queue_stream import QueueStreamReader

            return QueueStreamReader(settings, schema)
        from penstock.spark.source.stream import StreamReader

        return StreamReader(settings, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.spark.sink.sink import BatchWriter

        settings = write_settings(self.options, is_streaming=False)
        return BatchWriter(settings, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from penstock.spark.sink.sink import StreamWriter

        settings = write_settings(self.options, is_streaming=True)
        return StreamWriter(settings, schema)


class BatchReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, settings: ReadSettings, schema: StructType) -> None:
        self.settings = settings
        self.schema = schema
        self.range_filter: RangeFilter | None = None

    def partitions(self) -> Sequence[InputPartition]:
        client = blocking_client(self.settings.access)

        async def look() -> list[Range]:
            return await ranges_of(client.cluster, self.settings, self.range_filter)

        tasks = plan(
            client.retry(look),
            tasks_min=self.settings.tasks_min,
            task_records_max=self.settings.task_records_max,
        )
        return [RangePartition(spans) for spans in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # For an empty list of partitions Spark passes one placeholder.
        if not isinstance(partition, RangePartition):
            return iter(())
        return read_all(self.settings, self.schema, partition.spans)


class FilteredReader(BatchReader):
    """BatchReader for sessions in which Spark pushes filters down."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        self.range_filter = RangeFilter()
        return self.range_filter.take(filters)


async def ranges_of(
    cluster: Cluster, settings: ReadSettings, range_filter: RangeFilter | None = None
) -> list[Range]:
    """Ranges of a batch read, from the current state of the cluster."""
    places = await partitions_to_read(cluster, settings)
    level = settings.isolation_level
    starts = await resolve(
        cluster, settings.starting, places, isolation_level=level, group=settings.group
    )
    ends = await resolve(cluster, settings.ending, places, isolation_level=level)
    spans = ranges_between(starts, ends)
    if range_filter is None:
        return spans
    if range_filter.timestamp_low_ms is not None:
        spans = await _from_time(cluster, spans, range_filter.timestamp_low_ms, level)
    narrowed = [range_filter.apply(span) for span in spans]
    return [span for span in narrowed if span is not None]


async def _from_time(
    cluster: Cluster, spans: Sequence[Range], timestamp_ms: int, isolation_level: int
) -> list[Range]:
    """Ranges from the first record with at least this timestamp; earlier records cannot match."""
    wanted: dict[TopicPartition, int] = {span.where: timestamp_ms for span in spans}
    if not wanted:
        return []
    found = await list_offsets(cluster, wanted, isolation_level=isolation_level)
    kept = []
    for span in spans:
        first = found[span.where].offset
        start = span.end if first < 0 else max(span.start, first)
        if start < span.end:
            kept.append(span._replace(start=start))
    return kept
