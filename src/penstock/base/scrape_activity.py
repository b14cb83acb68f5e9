"""Tracks recent scrapes so that gauge refreshes stop 300 s after the last one.

`pay` records a scrape or a console request. `wait` returns at once for `SECONDS` from then on;
later it waits for the next one. A node that is not scraped does no work for scrapes.
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
