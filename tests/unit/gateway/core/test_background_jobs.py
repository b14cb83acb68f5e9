"""Errands under way: bounded, and told apart by topic."""

import asyncio

import pytest

from penstock.base.errors import Refused
from penstock.client.dead_letters.redrive import RedriveReport
from penstock.gateway.core.background_jobs import (
    COMPLETED,
    FAILED,
    REMEMBERED_MAX,
    RUNNING,
    BackgroundJobs,
    ProgressCallback,
)
from simulation.clock import SimClock
from simulation.loop import SimLoop
from simulation.random import SimRandom
from tests.run_with import run_with


def on_errands(test: object) -> None:
    loop = SimLoop(1)
    loop.run(test(BackgroundJobs(SimClock(loop), SimRandom(1))))  # type: ignore[operator]


@run_with(on_errands)
async def test_the_oldest_that_ended_are_forgotten_and_too_many_are_refused(
    errands: BackgroundJobs,
) -> None:
    async def once(told: ProgressCallback) -> RedriveReport:
        told(1)
        return RedriveReport(settled=1)

    async def forever(told: ProgressCallback) -> RedriveReport:
        await asyncio.Event().wait()
        raise AssertionError

    first, _ = errands.start("t", "redrive", once)
    await asyncio.sleep(1)
    assert (first.status, first.settled) == (COMPLETED, 1)
    tasks = [errands.start("t", "redrive", forever)[1] for _ in range(REMEMBERED_MAX)]
    assert {one.status for one in errands.of("t")} == {RUNNING}
    with pytest.raises(Refused, match="background jobs"):
        errands.start("t", "redrive", once)
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@run_with(on_errands)
async def test_one_whose_broker_cannot_be_reached_has_failed(errands: BackgroundJobs) -> None:
    async def lost(told: ProgressCallback) -> RedriveReport:
        raise OSError("gone")

    errand, _ = errands.start("t", "redrive", lost)
    await asyncio.sleep(1)
    assert (errand.status, errand.reason) == (FAILED, "gone")
    assert errands.of("other") == []
