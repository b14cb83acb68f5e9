"""A query's member of a share group: holds the records of the batch that runs.

Lives in the process that plans the query's batches, on a thread of its own, so that leases are
renewed while that process waits for Spark. Ends with the process: then the connection is lost, and
the broker gives the records to others.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from penstock.base.errors import PeerError, Refused
from penstock.client.admin.admin import Admin, begin_share_group
from penstock.client.cluster import Cluster
from penstock.client.metadata import TopicPartition
from penstock.client.share.acknowledgements import UNSEEN, AcknowledgementType
from penstock.client.share.consumer import ShareConfig, ShareConsumer
from penstock.client.share.leases import HeldLease
from penstock.runtime.loop_thread import LoopThread
from penstock.spark.connection import cluster_of
from penstock.spark.settings import ReadSettings
from penstock.spark.source.queue_offsets import OWED_MAX, Picked, QueueOffset, add, add_all, count

_log = logging.getLogger("penstock.spark")

FETCHED_AT_ONCE: Final = 2_000
_WAIT_MS: Final = 200
"""How long a batch waits for its first record, and how often Spark is told that there is none."""
_MORE_MS: Final = 20
"""How long it waits for another one."""
_START: Final = "earliest"
_CLOSING_S: Final = 5.0
_OWED_S: Final = 600.0
"""What was not delivered again for so long never will be: the queue knows that it is done."""


class QueueMember:
    """Made where it is first needed; `take` a batch, `finish` it, `take` the next."""

    def __init__(self, settings: ReadSettings, records_max: int) -> None:
        self._settings = settings
        self._records_max = records_max
        self._held: dict[int, list[HeldLease]] = {}
        """The records of batches that are not finished, by the batch's number."""
        self._owed: Picked = {}
        self._owed_until = 0.0
        self._finished = -1
        self._thread = LoopThread("penstock-queue")
        self._cluster: Cluster | None = None
        try:
            self._consumer = self._thread.run(self._join())
        except BaseException:
            self._thread.close()
            raise

    def take(self, begun: QueueOffset, ends: Mapping[TopicPartition, int] | None) -> QueueOffset:
        """The next batch, or `begun` itself if there is nothing; `ends`: what is younger waits."""
        return self._thread.run(self._take(begun, ends))

    def finish(self, done: QueueOffset) -> None:
        """Acknowledges a batch that is in Spark's checkpoint."""
        self._thread.run(self._finish(done))

    def close(self) -> None:
        """Gives back what is not finished."""
        try:
            self._thread.run(self._leave(), _CLOSING_S)
        except (OSError, Refused, PeerError) as error:
            _log.warning("group %s was not left: %s", self._settings.group, error)
        self._thread.close()

    # On the member's own thread.

    async def _join(self) -> ShareConsumer:
        settings = self._settings
        assert settings.group is not None
        cluster = self._cluster = cluster_of(settings.access)
        group = settings.group
        timeout_ms = settings.access.retry_timeout_ms
        await cluster.retrying(cluster.bootstrap, timeout_ms=timeout_ms)
        await begin_share_group(Admin(cluster), group, _START)
        config = ShareConfig(
            fetch_records=FETCHED_AT_ONCE,
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
                    # Uncounted: that a batch failed says nothing of most of its records.
                    self._consumer.settle(lease, AcknowledgementType.RELEASE, UNSEEN)
        await self._consumer.flush()
        await self._consumer.close()
        assert self._cluster is not None
        await self._cluster.close()

    async def _take(
        self, begun: QueueOffset, ends: Mapping[TopicPartition, int] | None
    ) -> QueueOffset:
        number = begun.batch + 1
        leases = self._held.get(number)
        if leases is None:
            leases = await self._receive(ends)
        if not leases:
            return begun
        self._held[number] = leases
        taken = QueueOffset(number)
        for lease in leases:
            add(taken.taken, lease.where, lease.message.offset, lease.message.offset)
        add_all(taken.owed, self._owed)
        return taken

    async def _receive(self, ends: Mapping[TopicPartition, int] | None) -> list[HeldLease]:
        leases: list[HeldLease] = []
        wait_ms = _WAIT_MS
        while len(leases) < self._records_max:
            found = await self._consumer.receive(self._records_max - len(leases), wait_ms)
            if not found:
                break
            unknown = [lease for lease in found if not self._settle_owed(lease)]
            fresh = [lease for lease in unknown if not self._give_back_young(lease, ends)]
            leases += fresh
            if unknown and not fresh:
                break
            wait_ms = _MORE_MS
        return leases

    def _settle_owed(self, lease: HeldLease) -> bool:
        """Whether it was done before; then the queue is told."""
        offset, owed = lease.message.offset, self._owed.get(lease.where)
        if owed is None or offset not in owed:
            return False
        owed.remove(offset, offset)
        self._consumer.settle(lease, AcknowledgementType.ACCEPT)
        return True

    def _give_back_young(self, lease: HeldLease, ends: Mapping[TopicPartition, int] | None) -> bool:
        """Whether it came after the query with AvailableNow began; then it is for the next one."""
        if ends is None or lease.message.offset < ends.get(lease.where, 0):
            return False
        self._consumer.settle(lease, AcknowledgementType.RELEASE, UNSEEN)
        return True

    async def _finish(self, done: QueueOffset) -> None:
        if done.batch == self._finished:
            return
        leases = self._held.pop(done.batch, None)
        if leases is None:
            # Of an earlier life of the query: its leases are gone, its records come again.
            add_all(self._owed, done.taken)
            add_all(self._owed, done.owed)
            self._owed_until = self._now() + _OWED_S
        else:
            await self._accept(leases)
        self._finished = done.batch
        self._forget_some()

    async def _accept(self, leases: list[HeldLease]) -> None:
        answers: list[asyncio.Future[None]] = []
        settled: list[HeldLease] = []
        lost = 0
        for lease in leases:
            if lease.is_lost:
                lost += 1
                self._owe(lease)
            else:
                settled.append(lease)
                answers.append(self._consumer.settle(lease, AcknowledgementType.ACCEPT))
        outcomes = await asyncio.gather(*answers, return_exceptions=True)
        for lease, outcome in zip(settled, outcomes, strict=True):
            if outcome is not None:
                lost += 1
                self._owe(lease)
        if lost:
            _log.warning(
                "%d records of a finished batch were no longer held by group %s: others may have "
                "got them as well",
                lost,
                self._settings.group,
            )

    def _owe(self, lease: HeldLease) -> None:
        add(self._owed, lease.where, lease.message.offset, lease.message.offset)
        self._owed_until = self._now() + _OWED_S

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _forget_some(self) -> None:
        if self._now() > self._owed_until:
            self._owed.clear()
        while count(self._owed) > OWED_MAX:
            where = max(self._owed, key=lambda one: len(self._owed[one]))
            self._owed[where].take(OWED_MAX // 10)
