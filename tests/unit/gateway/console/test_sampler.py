"""Sampler: shared by all viewers, idle without any."""

import asyncio

from penstock.gateway.console.sampler import SAMPLES_MAX
from tests.run_with import run_with
from tests.unit.gateway.console.console_client import API, ConsoleClient, on_console


@run_with(on_console)
async def test_sampler_runs_only_while_the_console_is_used(web: ConsoleClient) -> None:
    sampler = web.console.sampler
    running = asyncio.ensure_future(web.console.run())
    await asyncio.sleep(60)
    assert sampler.rounds == 0
    viewers = [web.begin("GET", f"{API}/live") for _ in range(50)]
    await asyncio.sleep(20)
    assert 9 <= sampler.rounds <= 12
    assert all(viewer.answer.body.count(b"event: overview") >= 9 for viewer in viewers)
    for viewer in viewers:
        await viewer.disconnect()
    await asyncio.sleep(900)
    rounds = sampler.rounds
    await asyncio.sleep(300)
    assert sampler.rounds == rounds
    assert len(sampler.samples) <= SAMPLES_MAX
    running.cancel()
