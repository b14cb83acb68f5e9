"""Recent node failures: new leaders for these nodes' partitions are about to be elected.

When a process dies, its clients notice at the same moment as the other nodes, and ask them at once
for the new leaders. An answer from the image would still name the dead node. Some clients then wait
for a second before they ask again, longer than the rest of a failover. So an API that answers such
a question waits here until the image shows the outcome of the failure.

Owns: the failed nodes with the time of failure, and the requests that wait for them.
Invariants: no request waits for a node longer than `WAIT_SECONDS_MAX` after its failure, whether
the node returns, is replaced, or neither.
Elsewhere: noticing a failure before the image does (`peer_liveness`), and acting on it
(`controller`).
"""

import asyncio
from collections.abc import Callable, Collection

from penstock.cluster.metadata.image import Image
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher

WAIT_SECONDS_MAX = 1.0
DETECTION_SECONDS = 0.002
"""Time for this node to notice a death: a client notices at the same moment, and may be faster to
ask than the node is to notice."""

Concerns = Callable[[Image, Collection[int]], bool]
"""Predicate: an answer from this image would name one of these nodes."""


class RecentFailures:
    """Nodes that failed within the last second."""

    def __init__(self, watcher: MetadataWatcher) -> None:
        self._watcher = watcher
        self._until_s: dict[int, float] = {}
        """Time until which requests may wait, by failed node."""
        self._waiters: list[asyncio.Future[None]] = []
        watcher.on_change(self._follow)

    def record_failure(self, node_id: int) -> None:
        """Records that the connection to the node broke, or cannot be made."""
        now_s = asyncio.get_running_loop().time()
        self._until_s.setdefault(node_id, now_s + WAIT_SECONDS_MAX)

    def record_recovery(self, node_id: int) -> None:
        if self._until_s.pop(node_id, None) is not None:
            self._wake()

    async def wait_for_detection(self) -> None:
        """Gives this node time to notice a failure that the client may have noticed already."""
        if len(self._watcher.image.brokers) > 1:
            await asyncio.sleep(DETECTION_SECONDS)

    async def wait_until_decided(self, concerns: Concerns) -> None:
        """Waits while the answer `concerns` a node that has just failed."""
        while (lost := self._recent()) and concerns(self._watcher.image, lost):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                async with asyncio.timeout_at(max(lost.values())):
                    await waiter
            except TimeoutError:
                pass

    def _follow(self, before: Image, after: Image) -> None:
        """Records a registration that ended, for any reason, as a failure; a new one ends it."""
        if before.brokers is not after.brokers:
            for node_id in before.brokers:
                if node_id not in after.brokers:
                    self.record_failure(node_id)
            for node_id in after.brokers:
                if node_id not in before.brokers:
                    self._until_s.pop(node_id, None)
        self._wake()

    def _recent(self) -> dict[int, float]:
        """Failed nodes that requests may wait for, and until when."""
        now_s = asyncio.get_running_loop().time()
        return {node_id: until_s for node_id, until_s in self._until_s.items() if until_s > now_s}

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
