"""Share group member of a query; holds the leases of the running batch.

Runs in the process that plans the query's batches, on its own thread, so that leases are renewed
while that process waits for Spark. If the process dies, its connection closes and the broker
redelivers the records to other members.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from penstock.base.errors import PeerError, Refused
from penstock.client.admin.admin import Admin, set_share_group_start
from penstock.client.cluster import Cluster
from penstock.client.metadata import TopicPartition
from penstock.client.share.acknowledgements import NEVER_DELIVERED, AcknowledgementType
from penstock.client.share.consumer import ShareConfig, ShareConsumer
from penstock.client.share.leases import HeldLease
from penstock.runtime.loop_thread import LoopThread
from penstock.spark.connection import cluster_of
from penstock.spark.settings import ReadSettings
from penstock.spark.source.queue_offsets import (
    UNACKNOWLEDGED_MAX,
    QueueOffset,
    RecordOffsets,
    add,
    add_all,
    count,
)

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
