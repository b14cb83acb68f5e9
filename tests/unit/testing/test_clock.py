"""Claims about virtual time: on a loop with plain timers, no broker."""

import asyncio
import threading
from collections.abc import Iterator
from typing import TypeVar

import pytest

from penstock.runtime.workers import ThreadWorkers
from penstock.testing.clock import CountedWorkers, SkewedLoop, VirtualClock

T = TypeVar("T")


class Stage:
    """A loop in a thread, as a broker has one."""

    def __init__(self) -> None:
        self.loop = SkewedLoop()
        self.threads = ThreadWorkers(1)
        self.workers = CountedWorkers(self.threads)
        self.clock = VirtualClock(self.loop)
        self.clock.busy.append(self.workers)
        self.fired: list[tuple[str, float]] = []
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def after(self, seconds: float, name: str) -> None:
        """Notes when it fires, in seconds after now."""
        begun = threading.Event()

        def begin() -> None:
            start = self.loop.time()
            self.loop.call_later(
                seconds, lambda: self.fired.append((name, self.loop.time() - start))
            )
            begun.set()

        self.loop.call_soon_threadsafe(begin)
        assert begun.wait(10)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()
        self.threads.close()


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()


def test_timer_fires_when_its_time_has_passed_and_not_before(stage: Stage) -> None:
    stage.after(900, "quarter")
    stage.clock.advance("14m")
    assert not stage.fired
    stage.clock.advance("1m")
    assert [name for name, _ in stage.fired] == ["quarter"]


def test_timers_due_in_one_jump_fire_after_it_earliest_first(stage: Stage) -> None:
    for seconds, name in ((600, "b"), (300, "a"), (899, "c")):
        stage.after(seconds, name)
    stage.clock.advance("15m")
    assert [name for name, _ in stage.fired] == ["a", "b", "c"]
    assert all(at_s >= 900 for _, at_s in stage.fired)


def test_steps_fire_each_timer_near_its_time(stage: Stage) -> None:
    for seconds, name in ((600, "b"), (300, "a")):
        stage.after(seconds, name)
    stage.clock.advance("15m", step="50s")
    assert [(name, at_s // 50) for name, at_s in stage.fired] == [("a", 6), ("b", 12)]


def test_steps_add_up_to_the_whole(stage: Stage) -> None:
    stage.clock.advance("10s", step="3s")
    assert stage.clock.advanced_s == pytest.approx(10)
    with pytest.raises(ValueError, match="steps"):
        stage.clock.advance("30d", step="1s")


def test_work_of_a_timer_ends_before_the_next_step(stage: Stage) -> None:
    async def chain() -> list[float]:
        start, seen = stage.loop.time(), []
        for _ in range(4):
            await asyncio.sleep(60)
            await stage.workers.run(lambda: None)
            seen.append(stage.loop.time() - start)
        return seen

    running = asyncio.run_coroutine_threadsafe(chain(), stage.loop)
    stage.clock.settle()
    stage.clock.advance("5m", step="1m")
    assert [int(at_s) // 60 for at_s in running.result(10)] == [1, 2, 3, 4]


def test_work_in_flight_is_finished_before_the_clock_jumps(stage: Stage) -> None:
    go_on = threading.Event()

    async def limited() -> str:
        async with asyncio.timeout(30):
            await stage.workers.run(go_on.wait)
        return "in time"

    running = asyncio.run_coroutine_threadsafe(limited(), stage.loop)
    threading.Timer(0.02, go_on.set).start()
    stage.clock.advance("1h")
    assert running.result(10) == "in time"


def test_wall_clock_goes_with_the_loop(stage: Stage) -> None:
    before_ms, before_s = stage.clock.now_ms(), stage.loop.time()
    stage.clock.advance("2h")
    passed_ms = stage.clock.now_ms() - before_ms
    assert passed_ms >= 7_200_000
    assert passed_ms == pytest.approx((stage.loop.time() - before_s) * 1000, abs=1_000)
    assert stage.clock.now().timestamp() * 1000 == pytest.approx(stage.clock.now_ms(), abs=1_000)
    assert stage.clock.advanced_s == pytest.approx(7_200)


def test_sessions_stay_in_real_time_by_default(stage: Stage) -> None:
    sessions = stage.clock.sessions
    before_s, before_ms = sessions.now_s(), sessions.now_ms()
    stage.clock.advance("1h")
    assert sessions.now_s() - before_s < 3_000
    stage.clock.advance("1h", sessions=True)
    assert sessions.now_s() - before_s >= 3_600
    assert sessions.now_ms() - before_ms >= 3_600_000


def test_another_loop_is_not_held_up(stage: Stage) -> None:
    stage.after(60, "minute")

    async def main() -> None:
        await stage.clock.advance_async("1m")

    asyncio.run(main())
    assert [name for name, _ in stage.fired] == ["minute"]


def test_loop_that_is_never_quiet_is_advanced_all_the_same(stage: Stage) -> None:
    def busy() -> None:
        stage.loop.call_soon(busy)

    stage.loop.call_soon_threadsafe(busy)
    stage.after(1, "second")
    stage.clock.advance("1s")
    assert [name for name, _ in stage.fired] == ["second"]
