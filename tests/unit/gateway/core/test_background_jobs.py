"""Background jobs: limits, failures, separation by topic."""

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


def on_jobs(test: object) -> None:
    loop = SimLoop(1)
    loop.run(test(BackgroundJobs(SimClock(loop), SimRandom(1))))  # type: ignore[operator]


@run_with(on_jobs)
async def test_oldest_finished_jobs_are_dropped_and_excess_jobs_are_refused(
    jobs: BackgroundJobs,
) -> None:
    async def once(on_progress: ProgressCallback) -> RedriveReport:
        on_progress(1)
        return RedriveReport(settled=1)

    async def forever(on_progress: ProgressCallback) -> RedriveReport:
        await asyncio.Event().wait()
        raise AssertionError

    first, _ = jobs.start("t", "redrive", once)
    await asyncio.sleep(1)
    assert (first.status, first.settled) == (COMPLETED, 1)
    tasks = [jobs.start("t", "redrive", forever)[1] for _ in range(REMEMBERED_MAX)]
    assert {one.status for one in jobs.of("t")} == {RUNNING}
    with pytest.raises(Refused, match="background jobs"):
        jobs.start("t", "redrive", once)
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@run_with(on_jobs)
async def test_job_fails_if_its_broker_is_unreachable(jobs: BackgroundJobs) -> None:
    async def lost(on_progress: ProgressCallback) -> RedriveReport:
        raise OSError("gone")

    job, _ = jobs.start("t", "redrive", lost)
    await asyncio.sleep(1)
    assert (job.status, job.reason) == (FAILED, "gone")
    assert jobs.of("other") == []
