"""Prefetch limit of a stream: its flow control.

A stream pushes messages. Without a limit a slow consumer would hold leases on messages that it has
not started with, until they expire. A delivered message counts until it is settled through this
node or its lease ends.
"""

import asyncio
from collections.abc import Iterable

from penstock.coordinator.runtime.steady_clock import SteadyTime
from penstock.gateway.core.messages import ReceivedMessage

EXTENSION_MS = 30_000
"""Assumed duration of an extension without one."""


class Prefetch:
    """Messages that one stream has delivered and that are not settled."""

    def __init__(self, by_receipt: dict[str, "Prefetch"], limit: int, time: SteadyTime) -> None:
        """`by_receipt`: shared by all streams; the gateway finds a receipt's stream in it."""
        self._by_receipt = by_receipt
        self._limit = limit
        self._time = time
        self._until_ms: dict[str, int] = {}
        self._news = asyncio.Event()

    def handed_out(self, messages: Iterable[ReceivedMessage]) -> None:
        for message in messages:
            self._until_ms[message.receipt] = message.lock_until_ms
            self._by_receipt[message.receipt] = self

    def settled(self, receipt: str) -> None:
        self._until_ms.pop(receipt, None)
        self._by_receipt.pop(receipt, None)
        self._news.set()

    def extended(self, receipt: str, lock_ms: int | None) -> None:
        self._until_ms[receipt] = self._time.now_ms() + (
            EXTENSION_MS if lock_ms is None else lock_ms
        )

    async def capacity(self) -> int:
        """Returns how many more may be delivered; waits until that is at least one."""
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
        """Ends the stream; returns the receipts that are not settled."""
        left = list(self._until_ms)
        for receipt in left:
            self.settled(receipt)
        return left
