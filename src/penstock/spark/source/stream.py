"""The streaming source: which offsets each micro-batch takes, and how far the group has come.

Lives in one long-lived process beside the driver, one per query; tasks get a copy that only
reads. `partitions` is pure (`planning`), so a batch run again has the same tasks.

Group offsets. Spark calls `commit` a batch late, and not at all for the last batch of
AvailableNow. But it asks for `latestOffset` only when all before `start` is processed and in the
commit log, so that is when `start` is published: after each finished batch, the last one too.
A group that does not take the commit (it has members) is warned of and does not stop the query.
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
from penstock.spark.connection import Link, link_to, settle
from penstock.spark.data_loss import lost
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
from penstock.spark.topics import places_of

_log = logging.getLogger("penstock.spark")

_EARLIEST = ReadPosition("startingOffsets", everywhere=EARLIEST)
_LATEST = ReadPosition("endingOffsets", everywhere=LATEST)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    def __init__(self, settings: ReadSettings, schema: StructType) -> None:
        self.settings = settings
        self.schema = schema
        self._target: PartitionOffsets | None = None
        """Where a query with AvailableNow ends."""
        self._published: PartitionOffsets = {}
        self._waiting_since: float | None = None

    # What Spark asks on the driver.

    def initialOffset(self) -> dict[str, Any]:
        return to_json(self._resolve(self.settings.starting))

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark has no limit of both kinds; latestOffset applies the minimum by itself.
        if self.settings.records_max is not None:
            return ReadMaxRows(self.settings.records_max)
        if self.settings.records_min is not None:
            return ReadMinRows(self.settings.records_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._resolve(_LATEST)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begun = self._own(from_json(start))
        self._publish(begun)
        latest = self._resolve(_LATEST)
        if self._target is not None:
            # Nothing beyond the target, and no partition that appeared after it was set.
            latest = {w: min(latest.get(w, end), end) for w, end in self._target.items()}
        available = self._check_loss(begun, latest)
        if isinstance(limit, ReadAllAvailable):
            return to_json(available)
        if self._target is None and self._should_wait(begun, available):
            return to_json(begun)
        if isinstance(limit, ReadMaxRows):
            return to_json(admit(begun, available, limit.max_rows))
        return to_json(available)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return to_json(self._resolve(_LATEST))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        spans = ranges_between(self._own(from_json(start)), self._own(from_json(end)))
        tasks = plan(
            spans,
            tasks_min=self.settings.tasks_min,
            task_records_max=self.settings.task_records_max,
        )
        return [RangePartition(spans) for spans in tasks]

    def commit(self, end: dict[str, Any]) -> None:
        """Comes a batch late: latestOffset has published this and more."""

    def stop(self) -> None:
        """Nothing to give back: connections end with the process."""

    # What tasks run.

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangePartition)
        if self.settings.emits_ranges:
            from penstock.spark.source.arrow import range_rows

            settle()
            return iter((range_rows(partition.spans),))
        return read_all(self.settings, self.schema, partition.spans)

    # Inside.

    def _link(self) -> Link:
        return link_to(self.settings.access)

    def _resolve(self, position: ReadPosition) -> PartitionOffsets:
        link = self._link()

        async def look() -> PartitionOffsets:
            places = await places_of(link.cluster, self.settings)
            return await resolve(
                link.cluster,
                position,
                places,
                isolation_level=self.settings.isolation_level,
                group=self.settings.group,
            )

        return link.retry(look)

    def _own(self, offsets: PartitionOffsets) -> PartitionOffsets:
        """Refuses offsets of topics this query does not read."""
        if self.settings.pattern is None:
            for where in offsets:
                if where.topic not in self.settings.topics:
                    raise ForeignOffsets(
                        f"the checkpoint is at {where}, which this query does not read: it reads "
                        f"{', '.join(self.settings.topics)}; the checkpoint belongs to another "
                        "query: choose another checkpointLocation"
                    )
        return offsets

    def _check_loss(self, begun: PartitionOffsets, latest: PartitionOffsets) -> PartitionOffsets:
        """What can be read; partitions that are gone or shorter than what was read are told of."""
        for where in sorted(begun):
            if where not in latest:
                lost(f"{where} was read up to {begun[where]} and is gone", fails=self._fails)
            elif latest[where] < begun[where]:
                lost(
                    f"{where} ends at {latest[where]} and was read up to {begun[where]}: "
                    "it lost records, or it is a new topic of the same name",
                    fails=self._fails,
                )
        fresh = sorted(where for where in latest if where not in begun)
        if fresh:
            self._check_fresh(fresh)
        return latest

    def _check_fresh(self, fresh: list[TopicPartition]) -> None:
        starts = self._resolve(_EARLIEST)
        for where in fresh:
            if starts.get(where, 0) > 0:
                lost(
                    f"{where} is new to this query and begins at {starts[where]}, not at 0",
                    fails=self._fails,
                )

    @property
    def _fails(self) -> bool:
        return self.settings.fail_on_data_loss

    def _should_wait(self, begun: PartitionOffsets, available: PartitionOffsets) -> bool:
        """Whether minOffsetsPerTrigger is not reached, and maxTriggerDelay neither."""
        if self.settings.records_min is None:
            return False
        now = self._link().loop.time()
        if self._waiting_since is None:
            self._waiting_since = now
        waited_ms = (now - self._waiting_since) * 1000
        count = count_between(begun, available)
        if count < self.settings.records_min and waited_ms < self.settings.trigger_delay_ms:
            return True
        self._waiting_since = now
        return False

    def _publish(self, done: PartitionOffsets) -> None:
        """Says in the group's name how far the query has come."""
        group = self.settings.group
        news = {where: at for where, at in done.items() if self._published.get(where) != at}
        if group is None or not news:
            return
        link = self._link()
        try:
            link.run(commit_offsets(link.cluster, group, news))
        except (Refused, OSError) as error:
            _log.warning("the offsets of group %s were not committed: %s", group, error)
            return
        self._published.update(news)
