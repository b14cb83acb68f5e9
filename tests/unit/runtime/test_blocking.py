"""Claims about what blocks a thread: a clock that only goes forward, and waits for later."""

from penstock.runtime.blocking import SteadyClock


def test_sleep_advances_the_clock_by_its_duration() -> None:
    clock = SteadyClock()
    before_s = clock.now_s()
    clock.sleep(0.005)
    assert clock.now_s() - before_s >= 0.005
