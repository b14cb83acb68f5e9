"""Keeps work at a rate: so many a second, on average since the first of it.

Time is the loop's. Work comes in portions; `portion` says how many fit in one, so that a low rate
is even and a high one is not cut into crumbs.
"""

import asyncio

PORTION_MAX = 10_000


class Pace:
    """`await pace.wait(10)` before ten are done; None as the rate: never waits."""

    def __init__(self, rate_per_s: float | None) -> None:
        assert rate_per_s is None or rate_per_s > 0
        self._rate_per_s = rate_per_s
        self._started: float | None = None
        self._count = 0

    @property
    def portion(self) -> int:
        """About what a fifth of a second allows."""
        if self._rate_per_s is None:
            return PORTION_MAX
        return max(1, min(PORTION_MAX, int(self._rate_per_s / 5)))

    async def wait(self, count: int) -> None:
        """Returns when `count` more may be done."""
        if self._rate_per_s is None:
            return
        loop = asyncio.get_running_loop()
        if self._started is None:
            self._started = loop.time()
        due = self._started + self._count / self._rate_per_s
        self._count += count
        if due > loop.time():
            await asyncio.sleep(due - loop.time())
