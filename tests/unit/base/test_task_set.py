"""Background tasks: the first error ends the owner."""

import asyncio

import pytest

from penstock.base.task_set import TaskSet
from simulation.loop import SimLoop, run
from tests.run_with import run_with


@run_with(run)
async def test_first_error_of_a_task_is_raised(loop: SimLoop) -> None:
    tasks = TaskSet()

    async def fail(after_s: float, why: str) -> None:
        await asyncio.sleep(after_s)
        raise ValueError(why)

    tasks.start(fail(2, "second"))
    tasks.start(fail(1, "first"))
    with pytest.raises(ValueError, match="first"):
        await tasks.failure()
    await tasks.finish()
    with pytest.raises(ValueError, match="first"):
        await tasks.failure()


@run_with(run)
async def test_cancelled_task_does_not_end_the_owner(loop: SimLoop) -> None:
    tasks = TaskSet()
    waiting = tasks.start(asyncio.sleep(1_000))
    ending = asyncio.ensure_future(tasks.failure())
    await asyncio.sleep(1)
    await tasks.cancel()
    assert (waiting.cancelled(), ending.done()) == (True, False)
    ending.cancel()
