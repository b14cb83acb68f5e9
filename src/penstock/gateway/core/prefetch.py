"""How much a stream hands out before some of it is settled: its flow control.

A stream pushes; without a limit a slow consumer would hold leases on messages that it has not even
looked at, until they run out. What was handed out counts until it is settled through this node, or
its lease has ended.
"""

import asyncio
from collections.abc import Iterable

from penstock.coordinator.runtime.steady_clock import SteadyTime
from penstock.gateway.core.messages import ReceivedMessage

EXTENSION_MS = 30_000
"""What an extension counts for that does not say how long it is."""


class Prefetch:
    """What one stream has handed out."""

    def __init__(self, all_of_them: dict[str, "Prefetch"], limit: int, time: SteadyTime) -> None:
        """`all_of_them`: those of all streams by receipt, where the door finds them."""
        self._all = all_of_them
        self._limit = limit
        self._time = time
        self._until_ms: dict[str, int] = {}
        self._news = asyncio.Event()

    def handed_out(self, messages: Iterable[ReceivedMessage]) -> None:
        for message in messages:
            self._until_ms[message.receipt] = message.lock_until_ms
            self._all[message.receipt] = self

    def settled(self, receipt: str) -> None:
        self._until_ms.pop(receipt, None)
        self._all.pop(receipt, None)
        self._news.set()

    def extended(self, receipt: str, lock_ms: int | None) -> None:
        self._until_ms[receipt] = self._time.now_ms() + (
            EXTENSION_MS if lock_ms is None else lock_ms
        )

    async def room(self) -> int:
        """How many more may be handed out; waits until it is at least one."""
        while True:
            now_ms = self._time.now_ms()
            for receipt in [key for key, until in self._until_ms.items() if until <= now_ms]:
                self.settled(receipt)
            if len(self._until_ms) < self._limit:
                return self._limit - len(self._until_ms)
            self._news.clear()
            next_ms = min(self._until_ms.values()) - now_ms
            timer = asyncio.get_running_loop().call_later(next_ms / 1000, self._news.set)
            try:
                await self._news.wait()
            finally:
                timer.cancel()

    def close(self) -> list[str]:
        """The stream has ended; the receipts that are not settled."""
        left = list(self._until_ms)
        for receipt in left:
            self.settled(receipt)
        return left
