"""Whether somebody is looking: work that only serves onlookers is done only then.

`pay` when somebody looks; `wait` returns at once for `SECONDS` from then on, and otherwise when
somebody looks again. A node that nobody scrapes has nothing running for scrapes.
"""

import asyncio

SECONDS = 300.0


class ScrapeActivity:
    def __init__(self) -> None:
        self._until_s = float("-inf")
        self._paid = asyncio.Event()

    def pay(self) -> None:
        self._until_s = asyncio.get_running_loop().time() + SECONDS
        self._paid.set()

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() >= self._until_s:
            self._paid.clear()
            await self._paid.wait()
