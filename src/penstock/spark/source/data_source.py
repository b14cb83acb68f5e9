"""The data source `penstock`: what Spark makes readers and writers of, and batch reads.

Spark calls `reader` in its planner and carries the reader into the tasks, so readers hold only
settings. The schema is that of Spark's Kafka source. Spark prunes no columns of Python sources:
the option `columns`, or a schema given by the user, says which are decoded.

Filters are pushed only where the user turned `spark.sql.python.filterPushdown.enabled` on: Spark
refuses a reader that could take filters while the setting is off, so there are two classes.

Every process that Spark starts imports this module, so what only some need is imported there.
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
from penstock.spark.connection import link_to
from penstock.spark.range_planning import Range, plan, ranges_between
from penstock.spark.settings import ReadSettings, read_settings, shape_of, write_settings
from penstock.spark.source.filters import Narrowing
from penstock.spark.source.rows import (
    RANGES_SCHEMA,
    RangePartition,
    check_schema,
    read_all,
    schema_of,
)
from penstock.spark.source.start_and_end import resolve
from penstock.spark.topics import places_of

_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class PenstockDataSource(DataSource):  # type: ignore[misc]
    """`spark.read.format("penstock")`, `readStream`, `write`, `writeStream`."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        columns = shape_of(self.options)
        return RANGES_SCHEMA if columns is None else schema_of(columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        settings = read_settings(self.options, is_streaming=False)
        check_schema(schema, settings)
        # Spark runs this module only when filters may be pushed, in a process of its own.
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
        self.narrowing: Narrowing | None = None

    def partitions(self) -> Sequence[InputPartition]:
        link = link_to(self.settings.access)

        async def look() -> list[Range]:
            return await ranges_of(link.cluster, self.settings, self.narrowing)

        tasks = plan(
            link.retry(look),
            tasks_min=self.settings.tasks_min,
            task_records_max=self.settings.task_records_max,
        )
        return [RangePartition(spans) for spans in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # Spark makes one partition of nothing where there are none.
        if not isinstance(partition, RangePartition):
            return iter(())
        return read_all(self.settings, self.schema, partition.spans)


class FilteredReader(BatchReader):
    """As BatchReader, for sessions in which Spark pushes filters down."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        self.narrowing = Narrowing()
        return self.narrowing.take(filters)


async def ranges_of(
    cluster: Cluster, settings: ReadSettings, narrowing: Narrowing | None = None
) -> list[Range]:
    """What a batch reads, as the cluster has it now."""
    places = await places_of(cluster, settings)
    level = settings.isolation_level
    starts = await resolve(
        cluster, settings.starting, places, isolation_level=level, group=settings.group
    )
    ends = await resolve(cluster, settings.ending, places, isolation_level=level)
    spans = ranges_between(starts, ends)
    if narrowing is None:
        return spans
    if narrowing.timestamp_low_ms is not None:
        spans = await _from_time(cluster, spans, narrowing.timestamp_low_ms, level)
    narrowed = [narrowing.apply(span) for span in spans]
    return [span for span in narrowed if span is not None]


async def _from_time(
    cluster: Cluster, spans: Sequence[Range], timestamp_ms: int, isolation_level: int
) -> list[Range]:
    """The ranges from the first record on that is as young as this; older ones cannot pass."""
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
