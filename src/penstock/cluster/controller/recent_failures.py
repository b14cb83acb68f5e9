"""Nodes that were lost a moment ago: who leads in their place is about to be decided.

When a process dies, its clients learn of it in the same moment as the other nodes, and ask them at
once who leads now. An answer from the image would still name the dead node, and some clients then
wait for a second before they ask again: longer than everything else a failover takes. So whoever
answers such a question waits here until the image shows what has come of the loss.

Owns: which nodes were lost, and when; who waits because of that.
Invariants: nobody waits because of a node for longer than `PATIENCE_SECONDS` after its loss,
whether it comes back, is replaced, or is neither.
Leaves to others: noticing before the image does (`links`), and everything that is done about it
(`controller`).
"""

import asyncio
from collections.abc import Callable, Collection

from penstock.cluster.metadata.image import Image
from penstock.cluster.metadata.metadata_watcher import MetadataWatcher

PATIENCE_SECONDS = 1.0
LOOK_SECONDS = 0.002
"""A client and a node hear of a death in the same moment, and a client may be quicker to ask than
a node is to notice."""

Concerns = Callable[[Image, Collection[int]], bool]
"""Whether an answer from this image would name one of these nodes."""


class RecentFailures:
    """What the links have noticed of late."""

    def __init__(self, follower: MetadataWatcher) -> None:
        self._follower = follower
        self._until_s: dict[int, float] = {}
        """By node that was lost: how long somebody may wait because of it."""
        self._waiters: list[asyncio.Future[None]] = []
        follower.on_change(self._follow)

    def lose(self, node_id: int) -> None:
        """The link to that node broke, or cannot be made."""
        now_s = asyncio.get_running_loop().time()
        self._until_s.setdefault(node_id, now_s + PATIENCE_SECONDS)

    def regain(self, node_id: int) -> None:
        if self._until_s.pop(node_id, None) is not None:
            self._wake()

    async def look(self) -> None:
        """Gives this node the time to notice what whoever asks may have noticed already."""
        if len(self._follower.image.brokers) > 1:
            await asyncio.sleep(LOOK_SECONDS)

    async def outlast(self, concerns: Concerns) -> None:
        """Waits while what is asked for `concerns` a node that was just lost."""
        while (lost := self._recent()) and concerns(self._follower.image, lost):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                async with asyncio.timeout_at(max(lost.values())):
                    await waiter
            except TimeoutError:
                pass

    def _follow(self, before: Image, after: Image) -> None:
        """A registration that ended, for whatever reason, is a loss; a new one ends it."""
        if before.brokers is not after.brokers:
            for node_id in before.brokers:
                if node_id not in after.brokers:
                    self.lose(node_id)
            for node_id in after.brokers:
                if node_id not in before.brokers:
                    self._until_s.pop(node_id, None)
        self._wake()

    def _recent(self) -> dict[int, float]:
        """The nodes that somebody may wait for, and until when."""
        now_s = asyncio.get_running_loop().time()
        return {node_id: until_s for node_id, until_s in self._until_s.items() if until_s > now_s}

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
