"""Streaming source: offsets of each micro-batch, and committed offsets of the group.

Runs in one long-lived process beside the driver, one per query; tasks get a copy that only
reads. `partitions` is pure (`range_planning`), so a repeated batch has the same tasks.

Group offsets: Spark calls `commit` one batch late, and never for the last batch of AvailableNow.
But it calls `latestOffset` only after everything before `start` is processed and in the commit log,
so the source commits `start` to the group then: after each finished batch, including the last one.
If the broker refuses the commit (the group has members), the source logs a warning and continues.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.base.errors import Refused
from penstock.client.committed_offsets import commit_offsets
from penstock.client.list_offsets import EARLIEST, LATEST
from penstock.client.metadata import TopicPartition
from penstock.spark.connection import BlockingClient, blocking_client, freeze_loaded_modules
from penstock.spark.data_loss import report_loss
from penstock.spark.range_planning import (
    ForeignOffsets,
    PartitionOffsets,
    admit,
    count_between,
    from_json,
    plan,
    ranges_between,
    to_json,
)
from penstock.spark.settings import ReadSettings
from penstock.spark.source.rows import RangePartition, read_all
from penstock.spark.source.start_and_end import ReadPosition, resolve
from penstock.spark.topics import partitions_to_read

_log = logging.getLogger("penstock.spark")

_EARLIEST = ReadPosition("startingOffsets", everywhere=EARLIEST)
_LATEST = ReadPosition("endingOffsets", everywhere=LATEST)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    def __init__(self, settings: ReadSettings, schema: StructType) -> None:
        self.settings = settings
        self.schema = schema
        self._target: PartitionOffsets | None = None
        """End offsets of an AvailableNow query."""
        self._published: PartitionOffsets = {}
        self._waiting_since: float | None = None

    # Called on the driver.

    def initialOffset(self) -> dict[str, Any]:
        return to_json(self._resolve(self.settings.starting))

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark has no combined limit; latestOffset applies the minimum itself.
        if self.settings.records_max is not None:
            return ReadMaxRows(self.settings.records_max)
        if self.settings.records_min is not None:
            return ReadMinRows(self.settings.records_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._resolve(_LATEST)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        current = self._checked(from_json(start))
        self._publish_offsets(current)
        latest = self._resolve(_LATEST)
        if self._target is not None:
            # Excludes offsets beyond the target, and partitions added after it was set.
            latest = {w: min(latest.get(w, end), end) for w, end in self._target.items()}
        available = self._check_loss(current, latest)
        if isinstance(limit, ReadAllAvailable):
            return to_json(available)
        if self._target is None and self._should_wait(current, available):
            return to_json(current)
        if isinstance(limit, ReadMaxRows):
            return to_json(admit(current, available, limit.max_rows))
        return to_json(available)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return to_json(self._resolve(_LATEST))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        spans = ranges_between(self._checked(from_json(start)), self._checked(from_json(end)))
        tasks = plan(
            spans,
            tasks_min=self.settings.tasks_min,
            task_records_max=self.settings.task_records_max,
        )
        return [RangePartition(spans) for spans in tasks]

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: called one batch late, after latestOffset has committed these offsets."""

    def stop(self) -> None:
        """Does nothing: connections end with the process."""

    # Called in tasks.

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangePartition)
        if self.settings.emits_ranges:
            from penstock.spark.source.arrow import range_rows

            freeze_loaded_modules()
            return iter((range_rows(partition.spans),))
        return read_all(self.settings, self.schema, partition.spans)

    def _client(self) -> BlockingClient:
        return blocking_client(self.settings.access)

    def _resolve(self, position: ReadPosition) -> PartitionOffsets:
        client = self._client()

        async def look() -> PartitionOffsets:
            places = await partitions_to_read(client.cluster, self.settings)
            return await resolve(
                client.cluster,
                position,
                places,
                isolation_level=self.settings.isolation_level,
                group=self.settings.group,
            )

        return client.retry(look)

    def _checked(self, offsets: PartitionOffsets) -> PartitionOffsets:
        """Offsets, refused if they are of topics that this query does not read."""
        if self.settings.pattern is None:
            for where in offsets:
                if where.topic not in self.settings.topics:
                    raise ForeignOffsets(
                        f"the checkpoint is at {where}, which this query does not read: it reads "
                        f"{', '.join(self.settings.topics)}; the checkpoint belongs to another "
                        "query: choose another checkpointLocation"
                    )
        return offsets

    def _check_loss(self, current: PartitionOffsets, latest: PartitionOffsets) -> PartitionOffsets:
        """Available offsets; reports partitions that were deleted or truncated below `current`."""
        for where in sorted(current):
            if where not in latest:
                report_loss(
                    f"{where} was read up to {current[where]} and no longer exists",
                    fails=self._fails_on_loss,
                )
            elif latest[where] < current[where]:
                report_loss(
                    f"{where} ends at {latest[where]} and was read up to {current[where]}: "
                    "it lost records, or the topic was deleted and created again",
                    fails=self._fails_on_loss,
                )
        fresh = sorted(where for where in latest if where not in current)
        if fresh:
            self._check_new_partitions(fresh)
        return latest

    def _check_new_partitions(self, fresh: list[TopicPartition]) -> None:
        starts = self._resolve(_EARLIEST)
        for where in fresh:
            if starts.get(where, 0) > 0:
                report_loss(
                    f"{where} is new to this query and begins at {starts[where]}, not at 0",
                    fails=self._fails_on_loss,
                )

    @property
    def _fails_on_loss(self) -> bool:
        return self.settings.fail_on_data_loss

    def _should_wait(self, current: PartitionOffsets, available: PartitionOffsets) -> bool:
        """True while neither minOffsetsPerTrigger nor maxTriggerDelay is reached."""
        if self.settings.records_min is None:
            return False
        now = self._client().loop.time()
        if self._waiting_since is None:
            self._waiting_since = now
        waited_ms = (now - self._waiting_since) * 1000
        count = count_between(current, available)
        if count < self.settings.records_min and waited_ms < self.settings.trigger_delay_ms:
            return True
        self._waiting_since = now
        return False

    def _publish_offsets(self, done: PartitionOffsets) -> None:
        """Commits the offsets of finished batches to the group."""
        group = self.settings.group
        news = {where: at for where, at in done.items() if self._published.get(where) != at}
        if group is None or not news:
            return
        client = self._client()
        try:
            client.run(commit_offsets(client.cluster, group, news))
        except (Refused, OSError) as error:
            _log.warning("offset commit of group %s failed: %s", group, error)
            return
        self._published.update(news)
