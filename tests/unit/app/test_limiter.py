"""Claims about rate limits: in virtual time, none waits for real."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.app.limiter import RateLimited, RateLimiter, SyncRateLimiter, TokenBucket
from simulation.loop import SimLoop

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    loop = SimLoop(1)
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def test_a_burst_goes_at_once_and_the_rest_at_the_rate() -> None:
    bucket = TokenBucket(10, burst=3)
    waits = [bucket.reserve(1, 0.0) for _ in range(6)]
    assert waits == pytest.approx([0, 0, 0, 0.1, 0.2, 0.3])


def test_what_is_not_used_is_kept_up_to_the_burst() -> None:
    bucket = TokenBucket(10, burst=5)
    bucket.reserve(5, 0.0)
    assert bucket.available(0.3) == pytest.approx(3)
    assert bucket.available(100.0) == pytest.approx(5)


def test_more_than_a_burst_at_once_waits_until_so_many_would_have_come() -> None:
    assert TokenBucket(10, burst=2).reserve(12, 0.0) == pytest.approx(1.0)


def test_what_takes_too_long_is_refused_and_takes_nothing() -> None:
    bucket = TokenBucket(1, burst=1)
    bucket.reserve(1, 0.0)
    with pytest.raises(RateLimited) as refused:
        bucket.reserve(1, 0.0, wait_s_max=0.5)
    assert refused.value.wait_s == pytest.approx(1.0)
    assert bucket.reserve(1, 1.0) == 0


def test_a_clock_that_goes_back_brings_nothing() -> None:
    bucket = TokenBucket(10, burst=1)
    bucket.reserve(1, 10.0)
    assert bucket.available(5.0) == pytest.approx(0)
    assert bucket.available(10.0) == pytest.approx(0)
    assert bucket.available(10.1) == pytest.approx(1)


@pytest.mark.parametrize(("rate", "burst"), [(0, None), (-1, None), (1, 0), (float("inf"), None)])
def test_rates_that_make_no_sense_are_refused(rate: float, burst: float | None) -> None:
    with pytest.raises(ValueError, match=r"rate|burst"):
        TokenBucket(rate, burst)
    with pytest.raises(ValueError, match="negative"):
        TokenBucket(1).reserve(-1, 0)


@given(
    rate=st.floats(0.5, 1000),
    burst=st.integers(1, 50),
    asks=st.lists(st.tuples(st.floats(0, 5), st.integers(1, 10)), max_size=60),
)
def test_no_span_of_time_lets_more_through_than_rate_and_burst(
    rate: float, burst: int, asks: list[tuple[float, int]]
) -> None:
    bucket, now_s = TokenBucket(rate, burst), 0.0
    goes: list[tuple[float, int]] = []
    for pause_s, count in asks:
        now_s += pause_s
        goes.append((now_s + bucket.reserve(count, now_s), count))
    assert goes == sorted(goes, key=lambda go: go[0]), "nobody is overtaken"
    for first in range(len(goes)):
        passed = 0
        for at_s, count in goes[first:]:
            passed += count
            # The first of them may have been waited for: its own tokens came before.
            allowed = max(burst, goes[first][1]) + rate * (at_s - goes[first][0])
            assert passed <= allowed * (1 + 1e-9) + 1e-6


def test_callers_of_one_loop_go_in_turn_at_the_rate() -> None:
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

    seen = run(main())
    assert [number for number, _ in seen] == list(range(5))
    assert [at_s for _, at_s in seen] == pytest.approx([n / 10 for n in range(5)])


def test_who_is_cancelled_gives_back_what_it_waited_for() -> None:
    async def main() -> float:
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
        return loop.time() - start

    assert run(main()) == pytest.approx(0.9, abs=0.01)


class Watch:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.at_s = 0.0
        self._mutex = threading.Lock()

    def now_s(self) -> float:
        return self.at_s

    def sleep(self, seconds: float) -> None:
        with self._mutex:
            self.at_s += seconds


def test_a_thread_waits_as_a_task_does() -> None:
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


def test_threads_together_get_no_more_than_one_alone() -> None:
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
