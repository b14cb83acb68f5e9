"""Share group member of a query; holds the leases of the running batch.

Runs in the process that plans the query's batches, on its own thread, so that leases are renewed
while that process waits for Spark. If the process dies, its connection closes and the broker
redelivers the records to other members.

Progress of a query in a queue, as stored in Spark's checkpoint. Pure. A queue has no single
offset, so the checkpoint stores the number of each batch and the offsets of its records. After a
crash, the repeated batch reads the same records in the same tasks, as the exactly-once sink
requires.

`unacknowledged` are records of finished earlier batches whose acknowledgement the queue may not
have; the query acknowledges them on redelivery. JSON: `{"batch": 3, "taken": {"jobs": {"0":
[5, 9, 12, 12]}}, "owed": {}}`, first and last offset of every run.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from penstock.base.errors import PeerError, Refused
from penstock.client.admin.admin import Admin, set_share_group_start
from penstock.client.metadata import TopicPartition
from penstock.client.share.acknowledgements import NEVER_DELIVERED, AcknowledgementType
from penstock.client.share.consumer import ShareConfig, ShareConsumer
from penstock.client.share.leases import HeldLease
from penstock.runtime.loop_thread import LoopThread
from penstock.spark.connection import cluster_of
from penstock.spark.range_planning import ForeignOffsets, Range
from penstock.spark.settings import ReadSettings
from penstock.state.queues.intervals import IntervalSet

if TYPE_CHECKING:
    from penstock.client.cluster import Cluster

UNACKNOWLEDGED_MAX: Final = 100_000
"""Maximum tracked records; beyond it, the query forgets some and would read them again."""

RecordOffsets = dict[TopicPartition, IntervalSet]


@dataclass(slots=True)
class QueueOffset:
    batch: int = 0
    taken: RecordOffsets = field(default_factory=dict)
    unacknowledged: RecordOffsets = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "batch": self.batch,
            "taken": _written(self.taken),
            "owed": _written(self.unacknowledged),
        }

    def spans(self) -> list[Range]:
        """Records of the batch as ranges, sorted."""
        return [
            Range(where.topic, where.partition, first, last + 1)
            for where in sorted(self.taken)
            for first, last in self.taken[where]
        ]


def read_offset(written: Any, topics: Iterable[str]) -> QueueOffset:
    """Raises ForeignOffsets for the checkpoint of another query."""
    try:
        if set(written) != {"batch", "taken", "owed"} or type(written["batch"]) is not int:
            raise ValueError(written)
        offset = QueueOffset(written["batch"], _read(written["taken"]), _read(written["owed"]))
    except (AttributeError, AssertionError, KeyError, ValueError, TypeError):
        raise ForeignOffsets(
            f"the checkpoint holds {str(written)[:100]!r}, which is not an offset of a queue; "
            "it belongs to another query: choose another checkpointLocation"
        ) from None
    known = set(topics)
    for where in offset.taken:
        if where.topic not in known:
            raise ForeignOffsets(
                f"the checkpoint has records of queue {where.topic!r}, which this query does not "
                f"read: it reads {', '.join(sorted(known))}; the checkpoint belongs to another "
                "query: choose another checkpointLocation"
            )
    return offset


def add(picked: RecordOffsets, where: TopicPartition, first: int, last: int) -> None:
    picked.setdefault(where, IntervalSet()).add(first, last)


def add_all(picked: RecordOffsets, more: Mapping[TopicPartition, IntervalSet]) -> None:
    for where, runs in more.items():
        for first, last in runs:
            add(picked, where, first, last)


def count(picked: Mapping[TopicPartition, IntervalSet]) -> int:
    return sum(len(runs) for runs in picked.values())


def tasks_of(
    spans: list[Range], *, tasks_min: int | None, task_records_max: int | None
) -> Iterator[list[Range]]:
    """Ranges of each task, all of one partition and limited to the task's share."""
    total = sum(span.size for span in spans)
    share = task_records_max or total
    if tasks_min is not None and total:
        share = min(share, max(1, -(-total // tasks_min)))
    task: list[Range] = []
    size = 0
    for span in spans:
        if task and task[-1].where != span.where:
            yield task
            task, size = [], 0
        while size + span.size > share:
            cut = span.start + share - size
            yield [*task, span._replace(end=cut)]
            task, size, span = [], 0, span._replace(start=cut)
        if span.size:
            task.append(span)
            size += span.size
    if task:
        yield task


def _written(picked: RecordOffsets) -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, list[int]]] = {}
    for where in sorted(picked):
        runs = [offset for run in picked[where] for offset in run]
        if runs:
            found.setdefault(where.topic, {})[str(where.partition)] = runs
    return found


def _read(written: Any) -> RecordOffsets:
    picked: RecordOffsets = {}
    for topic, partitions in written.items():
        for partition, numbers in partitions.items():
            for first, last in zip(numbers[::2], numbers[1::2], strict=True):
                add(picked, TopicPartition(topic, int(partition)), first, last)
    return picked


_log = logging.getLogger("penstock.spark")

FETCH_RECORDS: Final = 2_000
_WAIT_MS: Final = 200
"""Maximum wait for the first record of a batch; then Spark is told that there is none."""
_NEXT_WAIT_MS: Final = 20
"""Maximum wait for further records of a batch."""
_AUTO_OFFSET_RESET: Final = "earliest"
_CLOSE_TIMEOUT_S: Final = 5.0
_UNACKNOWLEDGED_S: Final = 600.0
"""Records not redelivered for this long are known to the queue as acknowledged."""


class QueueMember:
    """Leases one batch at a time: `take` a batch, `finish` it, `take` the next."""

    def __init__(self, settings: ReadSettings, records_max: int) -> None:
        self._settings = settings
        self._records_max = records_max
        self._held: dict[int, list[HeldLease]] = {}
        """Leases of unfinished batches, by batch number."""
        self._unacknowledged: RecordOffsets = {}
        self._unacknowledged_until = 0.0
        self._finished = -1
        self._thread = LoopThread("penstock-queue")
        self._cluster: Cluster | None = None
        try:
            self._consumer = self._thread.run(self._join())
        except BaseException:
            self._thread.close()
            raise

    def take(self, current: QueueOffset, ends: Mapping[TopicPartition, int] | None) -> QueueOffset:
        """Next batch, or `current` itself if the queue is empty.

        `ends` excludes newer records.
        """
        return self._thread.run(self._take(current, ends))

    def finish(self, done: QueueOffset) -> None:
        """Acknowledges a batch that is complete in Spark's checkpoint."""
        self._thread.run(self._finish(done))

    def close(self) -> None:
        """Releases the leases of unfinished batches and leaves the group."""
        try:
            self._thread.run(self._leave(), _CLOSE_TIMEOUT_S)
        except (OSError, Refused, PeerError) as error:
            _log.warning("leaving group %s failed: %s", self._settings.group, error)
        self._thread.close()

    # On the member's own thread.

    async def _join(self) -> ShareConsumer:
        settings = self._settings
        assert settings.group is not None
        cluster = self._cluster = cluster_of(settings.access)
        group = settings.group
        timeout_ms = settings.access.retry_timeout_ms
        await cluster.retrying(cluster.bootstrap, timeout_ms=timeout_ms)
        await set_share_group_start(Admin(cluster), group, _AUTO_OFFSET_RESET)
        config = ShareConfig(
            fetch_records=FETCH_RECORDS,
            held_max=2 * self._records_max,
            renew_for_s=settings.renew_for_ms / 1000,
            retry_timeout_ms=timeout_ms,
        )
        consumer = ShareConsumer(cluster, group, settings.topics, config)
        await consumer.start()
        return consumer

    async def _leave(self) -> None:
        for leases in self._held.values():
            for lease in leases:
                if not lease.is_settled and not lease.is_lost:
                    # Does not count as a delivery: most records of a failed batch are good.
                    self._consumer.settle(lease, AcknowledgementType.RELEASE, NEVER_DELIVERED)
        await self._consumer.flush()
        await self._consumer.close()
        assert self._cluster is not None
        await self._cluster.close()

    async def _take(
        self, current: QueueOffset, ends: Mapping[TopicPartition, int] | None
    ) -> QueueOffset:
        number = current.batch + 1
        leases = self._held.get(number)
        if leases is None:
            leases = await self._receive(ends)
        if not leases:
            return current
        self._held[number] = leases
        taken = QueueOffset(number)
        for lease in leases:
            add(taken.taken, lease.where, lease.message.offset, lease.message.offset)
        add_all(taken.unacknowledged, self._unacknowledged)
        return taken

    async def _receive(self, ends: Mapping[TopicPartition, int] | None) -> list[HeldLease]:
        leases: list[HeldLease] = []
        wait_ms = _WAIT_MS
        while len(leases) < self._records_max:
            found = await self._consumer.receive(self._records_max - len(leases), wait_ms)
            if not found:
                break
            unknown = [lease for lease in found if not self._acknowledge_redelivered(lease)]
            fresh = [lease for lease in unknown if not self._release_newer(lease, ends)]
            leases += fresh
            if unknown and not fresh:
                break
            wait_ms = _NEXT_WAIT_MS
        return leases

    def _acknowledge_redelivered(self, lease: HeldLease) -> bool:
        """Acknowledges a redelivered record of a finished batch; False for other records."""
        offset, unacknowledged = lease.message.offset, self._unacknowledged.get(lease.where)
        if unacknowledged is None or offset not in unacknowledged:
            return False
        unacknowledged.remove(offset, offset)
        self._consumer.settle(lease, AcknowledgementType.ACCEPT)
        return True

    def _release_newer(self, lease: HeldLease, ends: Mapping[TopicPartition, int] | None) -> bool:
        """Releases a record that is newer than the start of an AvailableNow query; else False."""
        if ends is None or lease.message.offset < ends.get(lease.where, 0):
            return False
        self._consumer.settle(lease, AcknowledgementType.RELEASE, NEVER_DELIVERED)
        return True

    async def _finish(self, done: QueueOffset) -> None:
        if done.batch == self._finished:
            return
        leases = self._held.pop(done.batch, None)
        if leases is None:
            # Batch of an earlier process: its leases are lost, its records will be redelivered.
            add_all(self._unacknowledged, done.taken)
            add_all(self._unacknowledged, done.unacknowledged)
            self._unacknowledged_until = self._now() + _UNACKNOWLEDGED_S
        else:
            await self._accept(leases)
        self._finished = done.batch
        self._bound_unacknowledged()

    async def _accept(self, leases: list[HeldLease]) -> None:
        answers: list[asyncio.Future[None]] = []
        settled: list[HeldLease] = []
        lost = 0
        for lease in leases:
            if lease.is_lost:
                lost += 1
                self._add_unacknowledged(lease)
            else:
                settled.append(lease)
                answers.append(self._consumer.settle(lease, AcknowledgementType.ACCEPT))
        outcomes = await asyncio.gather(*answers, return_exceptions=True)
        for lease, outcome in zip(settled, outcomes, strict=True):
            if outcome is not None:
                lost += 1
                self._add_unacknowledged(lease)
        if lost:
            _log.warning(
                "lost the leases of %d records of a finished batch in group %s: they may be "
                "delivered again",
                lost,
                self._settings.group,
            )

    def _add_unacknowledged(self, lease: HeldLease) -> None:
        add(self._unacknowledged, lease.where, lease.message.offset, lease.message.offset)
        self._unacknowledged_until = self._now() + _UNACKNOWLEDGED_S

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _bound_unacknowledged(self) -> None:
        if self._now() > self._unacknowledged_until:
            self._unacknowledged.clear()
        while count(self._unacknowledged) > UNACKNOWLEDGED_MAX:
            where = max(self._unacknowledged, key=lambda one: len(self._unacknowledged[one]))
            self._unacknowledged[where].take(UNACKNOWLEDGED_MAX // 10)
