"""A queue as a stream: records are leased, renewed while their batch runs, and acknowledged when
the batch is in the checkpoint.

The planning process holds the leases (`queue_member`) and tells Spark which records each batch
got (`queue_offsets`); tasks fetch them from the log by their offsets. Spark asks for `latestOffset`
only when all before `start` is processed and in the commit log, so that is when `start` is
acknowledged.

What is promised is at least once. When the driver dies, its leases run out; the batch runs again
from the checkpoint with the same records, and those that the queue delivers to this query again are
acknowledged and left out. But another member of the group may have got them meanwhile.

A query that fails gives its records back. A record that is bad is not the queue's business here:
`penstock.spark.dead_letters` writes it to the dead letters, in the same transaction as the rest.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.client.list_offsets import LATEST, list_offsets
from penstock.client.metadata import TopicPartition
from penstock.spark.connection import link_to
from penstock.spark.settings import ReadSettings
from penstock.spark.source.queue_member import QueueMember
from penstock.spark.source.queue_offsets import QueueOffset, read_offset, tasks_of
from penstock.spark.source.rows import RangePartition
from penstock.spark.topics import places_of

RECORDS_MAX: Final = 10_000
"""Of one batch, unless maxOffsetsPerTrigger says otherwise: all of them are held at a time."""


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    def __init__(self, settings: ReadSettings, schema: StructType) -> None:
        self.settings = settings
        self.schema = schema
        self._ends: dict[TopicPartition, int] | None = None
        """Where the queue ended when a query with AvailableNow began."""
        self._member: QueueMember | None = None

    # What Spark asks on the driver.

    def initialOffset(self) -> dict[str, Any]:
        return QueueOffset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._records_max)

    def prepareForTriggerAvailableNow(self) -> None:
        link = link_to(self.settings.access)

        async def look() -> dict[TopicPartition, int]:
            places = await places_of(link.cluster, self.settings)
            found = await list_offsets(link.cluster, dict.fromkeys(places, LATEST))
            return {where: found[where].offset for where in places}

        self._ends = link.retry(look)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begun = read_offset(start, self.settings.topics)
        if self._member is None:
            self._member = QueueMember(self.settings, self._records_max)
        self._member.finish(begun)
        taken = self._member.take(begun, self._ends)
        return start if taken is begun else taken.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        taken = read_offset(end, self.settings.topics)
        tasks = tasks_of(
            taken.spans(),
            tasks_min=self.settings.tasks_min,
            task_records_max=self.settings.task_records_max,
        )
        return [RangePartition(spans) for spans in tasks]

    def commit(self, end: dict[str, Any]) -> None:
        """Comes a batch late: latestOffset has acknowledged this and more."""

    def stop(self) -> None:
        if self._member is not None:
            self._member.close()
            self._member = None

    # What tasks run.

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangePartition)
        if self.settings.emits_ranges:
            from penstock.spark.source.arrow import range_rows

            return iter((range_rows(partition.spans),))
        from penstock.spark.source.read_offsets import read_picked

        return read_picked(self.settings, self.schema, partition.spans)

    # Inside.

    @property
    def _records_max(self) -> int:
        return self.settings.records_max or RECORDS_MAX
