"""Limits work to an average rate per second, measured from its start.

Time is that of the event loop. Work is done in batches of at most `portion`, so that a low rate is
even and a high rate needs few waits.
"""

import asyncio

PORTION_MAX = 10_000


class Pace:
    """Rate limit: `await pace.wait(10)` before ten items; with None as rate it never waits."""

    def __init__(self, rate_per_s: float | None) -> None:
        assert rate_per_s is None or rate_per_s > 0
        self._rate_per_s = rate_per_s
        self._started: float | None = None
        self._count = 0

    @property
    def portion(self) -> int:
        """Number of items for about a fifth of a second."""
        if self._rate_per_s is None:
            return PORTION_MAX
        return max(1, min(PORTION_MAX, int(self._rate_per_s / 5)))

    async def wait(self, count: int) -> None:
        """Waits until `count` more items are allowed."""
        if self._rate_per_s is None:
            return
        loop = asyncio.get_running_loop()
        if self._started is None:
            self._started = loop.time()
        due = self._started + self._count / self._rate_per_s
        self._count += count
        if due > loop.time():
            await asyncio.sleep(due - loop.time())
