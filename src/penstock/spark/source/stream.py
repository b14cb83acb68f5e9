"""Streaming source: offsets of each micro-batch, and committed offsets of the group.

Runs in one long-lived process beside the driver, one per query; tasks get a copy that only
reads. `partitions` is pure (`range_planning`), so a repeated batch has the same tasks.

Group offsets: Spark calls `commit` one batch late, and never for the last batch of AvailableNow.
But it calls `latestOffset` only after everything before `start` is processed and in the commit log,
so the source commits `start` to the group then: after each finished batch, including the last one.
If the broker refuses the commit (the group has members), the source logs a warning and continues.

Topic ids are part of the offsets. If a topic's id changes, the topic was deleted and created again:
that is data loss. With failOnDataLoss=false, the batch whose start and end have different ids reads
the new topic from its beginning. The offsets of a deleted topic stay in the checkpoint, so that a
new topic of the same name is recognized.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
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
    replaced_topics,
    to_json,
    topic_ids_of,
    without_topics,
)
from penstock.spark.settings import ReadSettings
from penstock.spark.source.rows import RangePartition, read_all
from penstock.spark.source.start_and_end import ReadPosition, resolve
from penstock.spark.topics import known_topic_ids, partitions_to_read

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
        self._reported_missing: set[TopicPartition] = set()

    # Called on the driver.

    def initialOffset(self) -> dict[str, Any]:
        position = self.settings.starting
        offsets, topic_ids = self._resolve(position)
        return to_json(offsets, {**topic_ids, **position.topic_ids})

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark has no combined limit; latestOffset applies the minimum itself.
        if self.settings.records_max is not None:
            return ReadMaxRows(self.settings.records_max)
        if self.settings.records_min is not None:
            return ReadMinRows(self.settings.records_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target, _ = self._resolve(_LATEST, may_lack=self._lossy_topics)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        current = self._checked(from_json(start))
        ids_before = topic_ids_of(start)
        latest, ids = self._resolve(_LATEST, may_lack={where.topic for where in current})
        replaced = replaced_topics(ids_before, ids)
        gone = {where: at for where, at in current.items() if where not in latest}
        self._publish_offsets(without_topics(current, {*replaced, *(w.topic for w in gone)}))
        if self._target is not None:
            # Excludes offsets beyond the target, and partitions added after it was set.
            latest = {w: min(latest.get(w, end), end) for w, end in self._target.items()}
        self._check_loss(current, latest, replaced)
        available = {**gone, **latest}
        begun = without_topics(current, replaced)
        ids = {**ids_before, **ids}
        if isinstance(limit, ReadAllAvailable):
            return to_json(available, ids)
        if self._target is None and self._should_wait(begun, available):
            return start
        if isinstance(limit, ReadMaxRows):
            return to_json(admit(begun, available, limit.max_rows), ids)
        return to_json(available, ids)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return to_json(*self._resolve(_LATEST, may_lack=self._lossy_topics))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        before, after = self._checked(from_json(start)), self._checked(from_json(end))
        ids = topic_ids_of(end)
        begun = without_topics(before, replaced_topics(topic_ids_of(start), ids))
        spans = ranges_between(begun, after)
        stale = self._replaced_since({span.topic: ids.get(span.topic) for span in spans})
        tasks = plan(
            [span for span in spans if span.topic not in stale],
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

    def _resolve(
        self, position: ReadPosition, *, may_lack: Collection[str] = ()
    ) -> tuple[PartitionOffsets, dict[str, str]]:
        """Current offsets of a position, and the topics' ids."""
        client = self._client()

        async def look() -> tuple[PartitionOffsets, dict[str, str]]:
            places = await partitions_to_read(client.cluster, self.settings, may_lack=may_lack)
            offsets = await resolve(
                client.cluster,
                position,
                places,
                isolation_level=self.settings.isolation_level,
                group=self.settings.group,
            )
            return offsets, known_topic_ids(client.cluster, {where.topic for where in places})

        return client.retry(look)

    @property
    def _lossy_topics(self) -> Collection[str]:
        """Named topics, if the query continues without those that were deleted."""
        return () if self._fails_on_loss else self.settings.topics

    def _replaced_since(self, planned: Mapping[str, str | None]) -> set[str]:
        """Topics of a planned batch, by their ids, that were deleted since; reports the loss."""
        wanted = {topic: planned_id for topic, planned_id in planned.items() if planned_id}
        if not wanted:
            return set()
        client = self._client()

        async def look() -> dict[str, str]:
            cluster = client.cluster
            if any(topic not in cluster.metadata.topics for topic in wanted):
                await cluster.refresh(sorted(wanted))
            return known_topic_ids(cluster, wanted)

        current = client.retry(look)
        stale = {topic for topic in wanted if current.get(topic) != wanted[topic]}
        for topic in sorted(stale):
            report_loss(
                f"topic {topic} was deleted or created again after this batch was planned",
                fails=self._fails_on_loss,
            )
        return stale

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

    def _check_loss(
        self, current: PartitionOffsets, latest: PartitionOffsets, replaced: Collection[str]
    ) -> None:
        """Reports topics and partitions that were deleted or truncated below `current`."""
        for topic in sorted(replaced):
            report_loss(
                f"topic {topic} was deleted and created again: records of the old topic that were "
                "not read are lost, and the new one must be read from its beginning",
                fails=self._fails_on_loss,
            )
        for where in sorted(without_topics(current, replaced)):
            if where not in latest:
                self._report_missing(where, current[where])
            elif latest[where] < current[where]:
                report_loss(
                    f"{where} ends at {latest[where]} and was read up to {current[where]}: "
                    "it lost records, or the topic was deleted and created again",
                    fails=self._fails_on_loss,
                )
        fresh = sorted(where for where in latest if where not in current)
        if fresh:
            self._check_new_partitions(fresh)

    def _report_missing(self, where: TopicPartition, offset: int) -> None:
        """Reports a deleted partition, once: later batches lack it as well."""
        if where not in self._reported_missing:
            report_loss(
                f"{where} was read up to {offset} and no longer exists", fails=self._fails_on_loss
            )
            self._reported_missing.add(where)

    def _check_new_partitions(self, fresh: list[TopicPartition]) -> None:
        starts, _ = self._resolve(_EARLIEST, may_lack=self._lossy_topics)
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
