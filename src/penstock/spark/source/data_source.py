"""Data source `penstock`, the factory of readers and writers; also batch reads.

Spark calls `reader` in its planner and sends the reader to the tasks, so readers hold only
settings. The schema is that of Spark's Kafka source. Spark does not prune columns of Python
sources: the option `columns`, or the user's schema, selects the decoded ones.

Spark pushes filters only if the user sets `spark.sql.python.filterPushdown.enabled`. It refuses a
reader with `pushFilters` while the setting is off, so there are two classes.

Every process that Spark starts imports this module, so it imports optional parts inside functions.

Narrows offset ranges by the filters that Spark pushes down. Narrowed ranges fully apply filters
on topic, partition and offset; Spark does not check those again. A lower bound on the timestamp
only moves the start: records with older timestamps may follow newer ones, so Spark checks those
rows again. An upper bound on the timestamp is not used.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from penstock.client.cluster import Cluster
from penstock.client.list_offsets import list_offsets
from penstock.spark.connection import blocking_client
from penstock.spark.option_values import OptionError
from penstock.spark.range_planning import Range, plan, ranges_between
from penstock.spark.settings import (
    READ,
    WRITE,
    ReadSettings,
    read_settings,
    selected_columns,
    write_settings,
)
from penstock.spark.source.rows import (
    RANGES_SCHEMA,
    RangePartition,
    check_schema,
    read_all,
    schema_of,
)
from penstock.spark.source.start_and_end import resolve
from penstock.spark.sql_tables import (
    defined_options,
    effective_options,
    is_table_definition,
    options_for,
    with_table_options,
    without_table_options,
)
from penstock.spark.topics import partitions_to_read

if TYPE_CHECKING:
    from penstock.client.metadata import TopicPartition

_EQUAL = (EqualTo, EqualNullSafe)
_EXACT = ("topic", "partition", "offset")


@dataclass
class RangeFilter:
    """Bounds from the pushed filters, which narrow ranges."""

    offset_low: int = 0
    offset_high: int | None = None
    timestamp_low_ms: int | None = None
    _tests: list[tuple[str, Any]] = field(default_factory=list)
    """Filters on topic and partition, with the values that match."""

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Applies supported filters; returns those that Spark must check itself."""
        return [kept for kept in filters if not self._take(kept)]

    def apply(self, span: Range) -> Range | None:
        """Narrowed range; None if it is empty."""
        for column, allowed in self._tests:
            if getattr(span, column) not in allowed:
                return None
        high = span.end if self.offset_high is None else min(span.end, self.offset_high)
        low = max(span.start, self.offset_low)
        return span._replace(start=low, end=high) if low < high else None

    def _take(self, pushed: Filter) -> bool:
        path = getattr(pushed, "attribute", None)
        if path is None or len(path) != 1:
            return False
        (column,) = path
        if isinstance(pushed, IsNotNull):
            # These columns are never null.
            return column in (*_EXACT, "timestamp", "timestampType")
        value = getattr(pushed, "value", None)
        if column == "timestamp":
            self._take_timestamp(pushed, value)
            return False
        if column in ("topic", "partition"):
            return self._take_name(pushed, column, value)
        return column == "offset" and self._take_offset(pushed, value)

    def _take_name(self, pushed: Filter, column: str, value: Any) -> bool:
        if isinstance(pushed, _EQUAL):
            self._tests.append((column, (value,)))
        elif isinstance(pushed, In):
            self._tests.append((column, tuple(value)))
        else:
            return False
        return True

    def _take_offset(self, pushed: Filter, value: Any) -> bool:
        if type(value) is not int:
            return False
        for kind, low, high in _BOUNDS:
            if isinstance(pushed, kind):
                if low is not None:
                    self.offset_low = max(self.offset_low, low(value))
                if high is not None:
                    end = high(value)
                    self.offset_high = (
                        end if self.offset_high is None else min(self.offset_high, end)
                    )
                return True
        return False

    def _take_timestamp(self, pushed: Filter, value: Any) -> None:
        if not isinstance(pushed, (*_EQUAL, GreaterThan, GreaterThanOrEqual)):
            return
        if isinstance(value, datetime):
            moment = value if value.tzinfo else value.replace(tzinfo=UTC)
            millis = int(moment.timestamp() * 1000)
            self.timestamp_low_ms = max(self.timestamp_low_ms or 0, millis)


_Bound = Callable[[int], int]
_BOUNDS: tuple[tuple[type[Any], _Bound | None, _Bound | None], ...] = (
    (EqualTo, lambda n: n, lambda n: n + 1),
    (EqualNullSafe, lambda n: n, lambda n: n + 1),
    (GreaterThan, lambda n: n + 1, None),
    (GreaterThanOrEqual, lambda n: n, None),
    (LessThan, None, lambda n: n),
    (LessThanOrEqual, None, lambda n: n + 1),
)


_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class PenstockDataSource(DataSource):  # type: ignore[misc]
    """`spark.read.format("penstock")`, `readStream`, `write`, `writeStream`."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        if is_table_definition(self.options):
            options = defined_options(self.options)
            columns = selected_columns(options_for(options, READ))
            if columns is None:
                raise OptionError("option 'emit' does not apply to a table")
            return with_table_options(schema_of(columns), options)
        columns = selected_columns(self.options)
        return RANGES_SCHEMA if columns is None else schema_of(columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = effective_options(self.options, schema, READ)
        schema = without_table_options(schema)
        settings = read_settings(options, is_streaming=False)
        check_schema(schema, settings)
        # Spark runs this module only if filters may be pushed, in a separate process.
        if _PUSHDOWN_WORKER in sys.modules:
            return FilteredReader(settings, schema)
        return BatchReader(settings, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = effective_options(self.options, schema, READ)
        schema = without_table_options(schema)
        settings = read_settings(options, is_streaming=True)
        check_schema(schema, settings)
        if settings.is_queue:
            from penstock.spark.source.queue_stream import QueueStreamReader

            return QueueStreamReader(settings, schema)
        from penstock.spark.source.stream import StreamReader

        return StreamReader(settings, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.spark.sink.sink import BatchWriter

        options = effective_options(self.options, schema, WRITE)
        settings = write_settings(options, is_streaming=False)
        return BatchWriter(settings, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from penstock.spark.sink.sink import StreamWriter

        options = effective_options(self.options, schema, WRITE)
        settings = write_settings(options, is_streaming=True)
        return StreamWriter(settings, schema, overwrite)


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
