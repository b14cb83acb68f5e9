"""`SimLoop`: virtual time, deterministic runs, limits."""

import asyncio

import pytest

from simulation.clock import EPOCH_MS, SimClock
from simulation.loop import SimDeadlock, SimLoop, SimOverrun, run
from simulation.random import SimRandom
from simulation.workers import SimWorkers
from tests.run_with import run_with


@run_with(run)
async def test_virtual_time_passes_without_waiting(loop: SimLoop) -> None:
    await asyncio.sleep(3600)
    assert loop.time() == 3600


@run_with(run)
async def test_timers_fire_in_order_of_time(loop: SimLoop) -> None:
    rung: list[int] = []
    for delay in (3, 1, 2):
        loop.call_later(delay, rung.append, delay)
    cancelled = loop.call_later(1.5, rung.append, 0)
    cancelled.cancel()
    await asyncio.sleep(5)
    assert rung == [1, 2, 3]


def test_ready_callbacks_run_in_order_unless_shuffled() -> None:
    async def main(loop: SimLoop) -> list[int]:
        ran: list[int] = []
        for i in range(50):
            loop.call_soon(ran.append, i)
        await asyncio.sleep(1)
        return ran

    assert run(main)[0] == list(range(50))
    shuffled = run(main, 3, shuffle=True)[0]
    assert sorted(shuffled) == list(range(50)) != shuffled


def test_deadlock_names_the_waiting_task() -> None:
    async def stuck_here() -> None:
        await asyncio.get_running_loop().create_future()

    async def main(loop: SimLoop) -> None:
        await asyncio.gather(stuck_here(), asyncio.sleep(2))

    with pytest.raises(SimDeadlock, match=r"(?s)at 2.0 s.*stuck_here at .*test_loop.py"):
        run(main)


def test_endless_run_is_stopped() -> None:
    async def spin(loop: SimLoop) -> None:
        while True:
            await asyncio.sleep(0)

    async def tick(loop: SimLoop) -> None:
        while True:
            await asyncio.sleep(1)

    with pytest.raises(SimOverrun):
        run(spin, callbacks_max=1000)
    with pytest.raises(SimOverrun):
        run(tick, time_max=100)


def test_remaining_tasks_are_cancelled() -> None:
    ended = []

    async def left() -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            ended.append(True)

    async def main(loop: SimLoop) -> None:
        loop.left = loop.create_task(left())  # type: ignore[attr-defined]
        await asyncio.sleep(1)

    run(main)
    assert ended == [True]


async def _busy(loop: SimLoop) -> list[int]:
    """Tasks, sets of tasks and random delays, whose order would differ between runs."""
    workers, order = SimWorkers(loop.seed), list[int]()

    async def step(i: int) -> None:
        await workers.run(abs, i)
        await asyncio.sleep(loop.rng.uniform(0, 1))
        order.append(i)

    tasks = {loop.create_task(step(i)) for i in range(200)}
    while tasks:
        done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        order.extend(hash(task) for task in done)
    return order


@pytest.mark.parametrize("shuffle", [False, True])
def test_traces_are_equal_only_for_equal_seeds(shuffle: bool) -> None:
    first, one = run(_busy, 7, shuffle=shuffle)
    again, two = run(_busy, 7, shuffle=shuffle)
    other, three = run(_busy, 8, shuffle=shuffle)
    assert (first, one.trace, one.callbacks) == (again, two.trace, two.callbacks)
    assert one.trace != three.trace
    assert first != other


@run_with(run)
async def test_run_in_executor_is_refused(loop: SimLoop) -> None:
    with pytest.raises(RuntimeError, match="Workers"):
        loop.run_in_executor(None, print)


@run_with(run)
async def test_cancelled_timers_are_removed(loop: SimLoop) -> None:
    for _ in range(5000):
        loop.call_later(1000, print).cancel()
        if _ % 100 == 0:
            await asyncio.sleep(0.001)
    assert len(loop._scheduled) < 500


@run_with(run)
async def test_workers_return_results_and_errors_after_a_delay(loop: SimLoop) -> None:
    workers = SimWorkers(1, delay_s=(0.5, 1.0))
    assert await workers.run(int, "ff", base=16) == 255
    assert 0.5 <= loop.time() <= 1.0
    with pytest.raises(ZeroDivisionError):
        await workers.run(divmod, 1, 0)
    workers.run(abs, 1).cancel()
    await asyncio.sleep(2)


@run_with(run)
async def test_wall_clock_follows_the_loop_and_jumps_alone(loop: SimLoop) -> None:
    clock, fast = SimClock(loop), SimClock(loop, drift=2.0)
    assert clock.now_ms() == EPOCH_MS
    await asyncio.sleep(10)
    assert clock.now_ms() == EPOCH_MS + 10_000
    assert fast.now_ms() == EPOCH_MS + 20_000
    clock.jump(-60_000)
    assert clock.now_ms() == EPOCH_MS - 50_000
    assert loop.time() == 10


def test_random_numbers_depend_on_the_seed() -> None:
    one, two, other = SimRandom(1), SimRandom(1), SimRandom(2)
    assert one.random_bytes(16) == two.random_bytes(16) != other.random_bytes(16)
    assert one.uniform(1, 2) == two.uniform(1, 2)
