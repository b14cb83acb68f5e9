"""Turns: what long work does between two turns of the loop, and whose is next."""

import asyncio

import pytest

from penstock.base.fair_scheduler import (
    PIECE_STEPS,
    REST_SECONDS,
    RUNNING_MAX,
    FairScheduler,
    Steps,
)
from simulation.loop import SimLoop, run
from tests.run_with import run_with


class Work:
    """Counts what is done of all works, and notes in which order they were through."""

    def __init__(self) -> None:
        self.done = 0
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.open = self.open_max = 0

    def steps(self, name: str, count: int) -> Steps[str]:
        self.begun.append(name)
        self.open += 1
        self.open_max = max(self.open, self.open_max)
        for _ in range(count):
            self.done += 1
            yield
        self.open -= 1
        self.ended.append(name)
        return name


@pytest.mark.parametrize("works", [1, 3, 50])
@run_with(run)
async def test_however_many_work_only_a_piece_is_done_before_a_rest(
    loop: SimLoop, *, works: int
) -> None:
    turns, work = FairScheduler(), Work()
    tasks = [
        loop.create_task(turns.run(f"h{at % 7}", work.steps(f"w{at}", 1_050)))
        for at in range(works)
    ]
    while work.open or not work.ended:
        before = work.done
        await asyncio.sleep(REST_SECONDS * 0.999)
        assert work.done - before <= PIECE_STEPS
    assert await asyncio.gather(*tasks) == [f"w{at}" for at in range(works)]
    assert work.open_max <= RUNNING_MAX


@run_with(run)
async def test_holder_with_much_work_waits_behind_its_own(loop: SimLoop) -> None:
    turns, work = FairScheduler(), Work()
    flood = [loop.create_task(turns.run("flood", work.steps(f"f{at}", 1_000))) for at in range(100)]
    await asyncio.sleep(0)
    assert await turns.run("other", work.steps("other", 1_000)) == "other"
    assert work.begun.index("other") <= RUNNING_MAX + 1
    for task in flood:
        task.cancel()
    await asyncio.gather(*flood, return_exceptions=True)


@run_with(run)
async def test_work_that_is_given_up_leaves_its_place_to_the_next(loop: SimLoop) -> None:
    turns, work = FairScheduler(), Work()
    tasks = [loop.create_task(turns.run("h", work.steps(f"w{at}", 500))) for at in range(20)]
    await asyncio.sleep(0.002)
    for task in tasks[:19]:
        task.cancel()
    assert await tasks[19] == "w19"
    assert (await turns.run("h", work.steps("again", 1)), len(work.ended)) == ("again", 2)
    assert turns._free == RUNNING_MAX
    assert not turns._waiting, "nothing is kept of those who have gone"


@run_with(run)
async def test_error_is_raised_and_frees_the_slot(loop: SimLoop) -> None:
    def steps() -> Steps[None]:
        yield
        raise ValueError("no")

    turns = FairScheduler()
    for _ in range(RUNNING_MAX + 1):
        with pytest.raises(ValueError, match="no"):
            await turns.run("h", steps())
    assert turns._free == RUNNING_MAX
