"""`ThreadWorkers`: results, errors, order, bounds."""

import asyncio
import threading

import pytest

from penstock.base.errors import Refused
from penstock.runtime.workers import ThreadWorkers
from tests.run_with import in_new_loop, run_with


@run_with(in_new_loop)
async def test_work_runs_in_another_thread_and_its_result_comes_back() -> None:
    workers = ThreadWorkers(2)
    here = threading.get_ident()
    assert await workers.run(threading.get_ident) != here
    assert await workers.run(int, "ff", base=16) == 255
    workers.close()


@run_with(in_new_loop)
async def test_error_is_raised_in_the_awaiting_task() -> None:
    workers = ThreadWorkers(1)
    with pytest.raises(ZeroDivisionError):
        await workers.run(divmod, 1, 0)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await workers.run(next, iter(()))
    assert await workers.run(abs, -1) == 1
    workers.close()


@run_with(in_new_loop)
async def test_single_thread_keeps_the_order() -> None:
    workers = ThreadWorkers(1)
    done: list[int] = []
    futures = [workers.run(done.append, i) for i in range(200)]
    await asyncio.gather(*futures)
    assert done == list(range(200))
    workers.close()


@run_with(in_new_loop)
async def test_threads_are_limited_and_started_on_demand() -> None:
    workers = ThreadWorkers(3, name="few")
    for _ in range(5):
        await workers.run(abs, 1)
    names = [t.name for t in threading.enumerate() if t.name.startswith("penstock-few")]
    assert len(names) == 1, "one after another needs one thread"
    barrier = threading.Barrier(3)
    await asyncio.gather(*[workers.run(barrier.wait) for _ in range(9)])
    names = [t.name for t in threading.enumerate() if t.name.startswith("penstock-few")]
    assert len(names) == 3
    workers.close()


@run_with(in_new_loop)
async def test_work_beyond_the_limit_is_refused_until_capacity_returns() -> None:
    workers = ThreadWorkers(1, waiting_max=2)
    gate = threading.Event()
    first, second = workers.run(gate.wait), workers.run(abs, -2)
    with pytest.raises(Refused):
        workers.run(abs, -3)
    gate.set()
    assert await first
    assert await second == 2
    assert await workers.run(abs, -3) == 3
    workers.close()


@run_with(in_new_loop)
async def test_cancelled_call_does_not_affect_others() -> None:
    workers = ThreadWorkers(1)
    gate = threading.Event()
    first, second = workers.run(gate.wait), workers.run(abs, -2)
    first.cancel()
    gate.set()
    assert await second == 2
    assert first.cancelled()
    workers.close()


def test_closing_finishes_queued_jobs() -> None:
    done: list[int] = []

    async def main() -> None:
        workers = ThreadWorkers(2)
        futures = [workers.run(done.append, i) for i in range(50)]
        workers.close()
        with pytest.raises(Refused):
            workers.run(abs, 1)
        await asyncio.gather(*futures)

    asyncio.run(main())
    assert sorted(done) == list(range(50))
