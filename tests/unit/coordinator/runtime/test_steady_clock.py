"""Coordinators' time runs evenly, whatever happens to the wall clock."""

import asyncio

from penstock.coordinator.runtime.steady_clock import SteadyTime
from simulation.clock import SimClock
from simulation.loop import SimLoop, run
from tests.run_with import run_with


@run_with(run)
async def test_steady_clock_starts_at_the_wall_clock_and_runs_with_it(loop: SimLoop) -> None:
    clock = SimClock(loop)
    time = SteadyTime(clock)
    assert time.now_ms() == clock.now_ms()
    await asyncio.sleep(10)
    assert abs(time.now_ms() - clock.now_ms()) <= 1


@run_with(run)
async def test_forward_jump_is_followed_slowly(loop: SimLoop) -> None:
    clock = SimClock(loop)
    time = SteadyTime(clock)
    before = time.now_ms()
    clock.jump(3_600_000)
    await asyncio.sleep(10)
    assert 10_900 <= time.now_ms() - before <= 11_001, "a tenth faster, no more"
    await asyncio.sleep(40_000)
    assert abs(time.now_ms() - clock.now_ms()) <= 1, "and in the end it is right again"


@run_with(run)
async def test_backward_jump_never_decreases_the_time(loop: SimLoop) -> None:
    clock = SimClock(loop)
    time = SteadyTime(clock)
    clock.jump(-3_600_000)
    seen = []
    for _ in range(100):
        seen.append(time.now_ms())
        await asyncio.sleep(0.1)
    assert seen == sorted(seen)
    assert seen[-1] - seen[0] >= 8_900


@run_with(run)
async def test_elapsed_time_may_come_from_another_source(loop: SimLoop) -> None:
    clock, elapsed_s = SimClock(), [0.0]
    time = SteadyTime(clock, lambda: elapsed_s[0])
    before = time.now_ms()
    await asyncio.sleep(3_600)
    assert time.now_ms() == before
    elapsed_s[0] = 5.0
    clock.jump(5_000)
    assert time.now_ms() - before == 5_000
