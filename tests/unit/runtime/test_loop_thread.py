"""A loop in a thread, for code that does not await."""

import asyncio
import threading

import pytest

from penstock.runtime.loop_thread import LoopThread


async def where() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


def test_coroutines_run_on_one_thread_for_all_callers() -> None:
    thread = LoopThread("the-loop")
    found: list[str] = []
    callers = [threading.Thread(target=lambda: found.append(thread.run(where()))) for _ in range(5)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert found == ["the-loop"] * 5
    thread.close()


def test_exception_of_a_coroutine_reaches_the_caller() -> None:
    async def fail() -> None:
        raise KeyError("x")

    thread = LoopThread()
    with pytest.raises(KeyError):
        thread.run(fail())
    thread.close()


def test_call_that_takes_too_long_is_cancelled() -> None:
    ended = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    thread = LoopThread()
    with pytest.raises(TimeoutError):
        thread.run(wait(), timeout_s=0.05)
    assert ended.wait(30)
    thread.close()


def test_closed_thread_runs_nothing_and_calls_do_not_nest() -> None:
    thread = LoopThread()

    async def nested() -> None:
        thread.run(where())

    with pytest.raises(RuntimeError, match="await there instead"):
        thread.run(nested())
    thread.close()
    thread.close()
    with pytest.raises(RuntimeError, match="closed"):
        thread.run(where())


def test_tasks_that_are_left_are_cancelled_at_the_end() -> None:
    ended = threading.Event()

    async def begin() -> None:
        async def forever() -> None:
            try:
                await asyncio.sleep(600)
            finally:
                ended.set()

        tasks.append(asyncio.ensure_future(forever()))
        await asyncio.sleep(0)

    tasks: list[asyncio.Future[None]] = []
    thread = LoopThread()
    thread.run(begin())
    thread.close()
    assert ended.is_set()
