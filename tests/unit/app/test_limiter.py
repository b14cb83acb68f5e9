"""Rate limiters, in virtual time."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from penstock.app.limiter import RateLimited, RateLimiter, SyncRateLimiter
from simulation.loop import SimLoop
from tests.run_with import run_with

T = TypeVar("T")


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    loop = SimLoop(1)
    try:
        return loop.run_until_complete(work())
    finally:
        loop.close()


@pytest.mark.parametrize("kind", [RateLimiter, SyncRateLimiter])
@pytest.mark.parametrize(("rate", "burst"), [(0, None), (-1, None), (1, 0), (float("inf"), None)])
def test_invalid_rate_is_rejected(
    kind: type[RateLimiter] | type[SyncRateLimiter], rate: float, burst: float | None
) -> None:
    with pytest.raises(ValueError, match=r"rate|burst"):
        kind(rate, burst)


def test_negative_count_is_rejected() -> None:
    with pytest.raises(ValueError, match="negative"):
        SyncRateLimiter(1).acquire(-1)


def test_wait_beyond_timeout_is_refused_without_taking_tokens() -> None:
    watch = Watch()
    limiter = SyncRateLimiter(1, burst=1, clock=watch)
    limiter.acquire()
    with pytest.raises(RateLimited) as refused:
        limiter.acquire(timeout=0.5)
    assert refused.value.wait_s == pytest.approx(1.0)
    watch.sleep(1.0)
    assert limiter.try_acquire()


def test_callers_proceed_in_order_at_the_rate() -> None:
    async def main() -> list[tuple[int, float]]:
        loop, limiter = asyncio.get_running_loop(), RateLimiter(10, burst=1)
        start, seen = loop.time(), []

        async def call(number: int) -> None:
            await limiter.acquire()
            seen.append((number, round(loop.time() - start, 3)))

        await asyncio.gather(*(call(number) for number in range(5)))
        assert not limiter.try_acquire()
        await asyncio.sleep(0.1)
        async with limiter:
            pass
        return seen

    seen = run(main)
    assert [number for number, _ in seen] == list(range(5))
    assert [at_s for _, at_s in seen] == pytest.approx([n / 10 for n in range(5)])


@run_with(run)
async def test_cancelled_wait_returns_its_tokens() -> None:
    loop, limiter = asyncio.get_running_loop(), RateLimiter(1, burst=1)
    await limiter.acquire()
    waiting = [asyncio.create_task(limiter.acquire()) for _ in range(5)]
    await asyncio.sleep(0.1)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    with pytest.raises(RateLimited):
        await limiter.acquire(timeout="500ms")
    start = loop.time()
    await limiter.acquire()
    assert loop.time() - start == pytest.approx(0.9, abs=0.01)


class Watch:
    """Clock that only `sleep` advances."""

    def __init__(self) -> None:
        self.at_s = 0.0
        self._mutex = threading.Lock()

    def now_s(self) -> float:
        return self.at_s

    def sleep(self, seconds: float) -> None:
        with self._mutex:
            self.at_s += seconds


def test_sync_limiter_waits_like_the_async_one() -> None:
    watch = Watch()
    limiter = SyncRateLimiter(4, burst=1, clock=watch)
    for _ in range(5):
        limiter.acquire()
    assert watch.at_s == pytest.approx(1.0)
    assert not limiter.try_acquire()
    with limiter:
        pass
    with pytest.raises(RateLimited):
        limiter.acquire(100, timeout=1)


def test_threads_share_one_rate() -> None:
    limiter = SyncRateLimiter(1, burst=100, clock=Watch())
    got: list[bool] = []
    threads = [
        threading.Thread(target=lambda: got.extend(limiter.try_acquire() for _ in range(100)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(got), sum(got)) == (400, 100)
