"""One look for all who watch, and none when nobody does."""

import asyncio

from penstock.gateway.console.sampler import SAMPLES_MAX
from tests.run_with import run_with
from tests.unit.gateway.console.looking import API, Looker, on_console


@run_with(on_console)
async def test_the_sampler_looks_only_while_somebody_does_and_for_all_at_once(web: Looker) -> None:
    sampler = web.console.sampler
    running = asyncio.ensure_future(web.console.run())
    await asyncio.sleep(60)
    assert sampler.rounds == 0
    viewers = [web.begin("GET", f"{API}/live") for _ in range(50)]
    await asyncio.sleep(20)
    assert 9 <= sampler.rounds <= 12
    assert all(viewer.answer.body.count(b"event: overview") >= 9 for viewer in viewers)
    for viewer in viewers:
        await viewer.hang_up()
    await asyncio.sleep(900)
    rounds = sampler.rounds
    await asyncio.sleep(300)
    assert sampler.rounds == rounds
    assert len(sampler.samples) <= SAMPLES_MAX
    running.cancel()
