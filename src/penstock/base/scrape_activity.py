"""Tracks recent scrapes so that gauge refreshes stop 300 s after the last one.

`note_scrape` records a scrape or a console request. `wait` returns at once for `SECONDS` from then
on; later it waits for the next one. A node that is not scraped does no work for scrapes.
"""

import asyncio

SECONDS = 300.0


class ScrapeActivity:
    def __init__(self) -> None:
        self._until_s = float("-inf")
        self._scraped = asyncio.Event()

    def note_scrape(self) -> None:
        self._until_s = asyncio.get_running_loop().time() + SECONDS
        self._scraped.set()

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() >= self._until_s:
            self._scraped.clear()
            await self._scraped.wait()
