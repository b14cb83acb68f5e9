"""Scrape activity lasts for a while after a scrape."""

import asyncio

from penstock.base.scrape_activity import SECONDS, ScrapeActivity
from simulation.loop import SimLoop, run
from tests.run_with import run_with


@run_with(run)
async def test_refreshes_run_only_after_a_recent_scrape(loop: SimLoop) -> None:
    attention = ScrapeActivity()
    rounds = 0

    async def work() -> None:
        nonlocal rounds
        while True:
            await attention.wait()
            rounds += 1
            await asyncio.sleep(SECONDS / 10)

    task = asyncio.ensure_future(work())
    await asyncio.sleep(SECONDS * 3)
    assert rounds == 0
    attention.note_scrape()
    await asyncio.sleep(SECONDS * 3)
    assert rounds == 10
    attention.note_scrape()
    await asyncio.sleep(SECONDS / 2 + 1)
    assert rounds in (15, 16)
    task.cancel()
