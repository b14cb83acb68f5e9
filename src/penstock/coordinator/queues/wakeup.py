"""Wakes queues without consumers: leases expire and dead letters are written without a request.

The node that stores queue states knows which queues exist. When a shard of states is loaded here,
and when a partition gets another leader, that leader is asked to open its queues; a queue with
nothing to do closes again after a while. A leader that cannot be reached, or cannot open a queue
yet, is asked again.

Bounds: `AT_ONCE` queues are woken at a time.
"""

import asyncio
from typing import TypeAlias

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ids import TopicId
from penstock.base.retry import Retry
from penstock.cluster.metadata.image import Image
from penstock.coordinator.queues.admin import QueueAdmin
from penstock.coordinator.queues.state_store import QueueStateStore
from penstock.coordinator.runtime.shard_host import HostContext
from penstock.state.queues.state_shard import QueueKey

AT_ONCE = 100
POLL_SECONDS = 0.2
"""Delay that collects changes of leaders, which come in groups."""
RETRY_SECONDS = (2.0, 8.0)
HOPELESS = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.GROUP_ID_NOT_FOUND,
)

Leadership: TypeAlias = tuple[int, int]
"""A leader and its epoch."""


class QueueWakeup:
    """Asks leaders to open the queues whose states are stored here."""

    def __init__(self, around: HostContext, keeping: QueueStateStore, admin: QueueAdmin) -> None:
        self._around = around
        self._keeping = keeping
        self._admin = admin
        self._woken: dict[QueueKey, Leadership] = {}
        """Leader and epoch that were last asked, by queue."""
        self._retry = Retry(around.random, *RETRY_SECONDS)
        self._news = asyncio.Event()
        keeping.on_loaded(self._news.set)

    def follow(self, before: Image, after: Image) -> None:
        """Called at every change of the image."""
        if before.topics is not after.topics:
            self._news.set()

    async def run(self) -> None:
        """Wakes queues until cancelled."""
        while True:
            await self._news.wait()
            await asyncio.sleep(POLL_SECONDS)
            self._news.clear()
            due = self._due()
            told = [
                await self._wake(due[start : start + AT_ONCE])
                for start in range(0, len(due), AT_ONCE)
            ]
            if all(told):
                self._retry.succeeded()
            elif not self._news.is_set():
                asyncio.get_running_loop().call_later(self._retry.next_s(), self._news.set)

    def _due(self) -> list[tuple[QueueKey, Leadership]]:
        """Returns queues of the shards here whose leader has not been asked."""
        known: dict[QueueKey, Leadership] = {}
        due = []
        for _, shard in self._keeping.host.active():
            for key in shard.queues():
                leadership = self._leadership_of(key)
                if leadership is None:
                    continue
                if self._woken.get(key) == leadership:
                    known[key] = leadership
                else:
                    due.append((key, leadership))
        self._woken = known
        return due

    def _leadership_of(self, key: QueueKey) -> Leadership | None:
        topic = self._around.watcher.image.topics_by_id.get(TopicId(key.topic_id))
        if topic is None or key.partition >= len(topic.partitions):
            return None
        record = topic.partitions[key.partition]
        return record.leader, record.leader_epoch

    async def _wake(self, due: list[tuple[QueueKey, Leadership]]) -> bool:
        """Returns True if none of them must be asked again."""
        is_done = True
        told = await self._admin.wake([key for key, _ in due])
        for (key, leadership), answer in zip(due, told, strict=True):
            if not isinstance(answer, Refused) or answer.code in HOPELESS:
                self._woken[key] = leadership
            else:
                is_done = False
        return is_done
