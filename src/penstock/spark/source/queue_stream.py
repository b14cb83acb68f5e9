"""A queue as a stream: leases records, renews them while their batch runs, and acknowledges them
when the batch is in the checkpoint.

The planning process holds the leases (`queue_member`) and returns the offsets of each batch to
Spark; tasks fetch the records from the log by offset. Spark calls `latestOffset`
only after everything before `start` is processed and in the commit log, so `start` is acknowledged
then.

Delivery is at least once. When the driver dies, its leases expire. The batch runs again from the
checkpoint with the same records, and the query acknowledges and skips those that the queue
redelivers to it. But another member of the group may have received them in between.

A failing query releases its records. The queue does not dead-letter bad records here:
`penstock.spark.dead_letters` writes them to the dead-letter queue, in the same transaction as the
other rows.
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
from penstock.spark.connection import blocking_client
from penstock.spark.settings import ReadSettings
from penstock.spark.source.queue_member import QueueMember, QueueOffset, read_offset, tasks_of
from penstock.spark.source.rows import RangePartition
from penstock.spark.topics import partitions_to_read

RECORDS_MAX: Final = 10_000
"""Default of maxOffsetsPerTrigger for a queue: all records of a batch are leased at once."""


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    def __init__(self, settings: ReadSettings, schema: StructType) -> None:
        self.settings = settings
        self.schema = schema
        self._ends: dict[TopicPartition, int] | None = None
        """End offsets at the start of an AvailableNow query."""
        self._member: QueueMember | None = None

    # Called on the driver.

    def initialOffset(self) -> dict[str, Any]:
        return QueueOffset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._records_max)

    def prepareForTriggerAvailableNow(self) -> None:
        client = blocking_client(self.settings.access)

        async def look() -> dict[TopicPartition, int]:
            places = await partitions_to_read(client.cluster, self.settings)
            found = await list_offsets(client.cluster, dict.fromkeys(places, LATEST))
            return {where: found[where].offset for where in places}

        self._ends = client.retry(look)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        current = read_offset(start, self.settings.topics)
        if self._member is None:
            self._member = QueueMember(self.settings, self._records_max)
        self._member.finish(current)
        taken = self._member.take(current, self._ends)
        return start if taken is current else taken.to_json()

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
        """Does nothing: called one batch late, after latestOffset has acknowledged this batch."""

    def stop(self) -> None:
        if self._member is not None:
            self._member.close()
            self._member = None

    # Called in tasks.

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangePartition)
        if self.settings.emits_ranges:
            from penstock.spark.source.arrow import range_rows

            return iter((range_rows(partition.spans),))
        from penstock.spark.source.read_offsets import read_selected

        return read_selected(self.settings, self.schema, partition.spans)

    @property
    def _records_max(self) -> int:
        return self.settings.records_max or RECORDS_MAX
