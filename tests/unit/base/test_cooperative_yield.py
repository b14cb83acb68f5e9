"""Long work yields to other tasks, and not more often than it must."""

import asyncio

from penstock.base.cooperative_yield import HOLD_SECONDS, CooperativeYield
from simulation.loop import SimLoop, run
from tests.run_with import run_with

REST_S = 0.002


@run_with(run)
async def test_other_tasks_run_after_each_hold(loop: SimLoop) -> None:
    turns: list[float] = []

    async def others() -> None:
        while True:
            turns.append(loop.time())
            await asyncio.sleep(REST_S / 2)

    waiting = asyncio.ensure_future(others())
    breath = CooperativeYield(REST_S)
    for _ in range(100):
        await breath.draw()  # No time has passed.
    assert turns == []
    for number in range(1, 6):
        await asyncio.sleep(HOLD_SECONDS * 2)  # The simulator's time passes in sleep only.
        before, began_s = len(turns), loop.time()
        await breath.draw()
        assert loop.time() >= began_s + REST_S, number
        assert len(turns) >= before + 2, number
        await breath.draw()
        assert loop.time() < began_s + REST_S * 2, number
    waiting.cancel()
