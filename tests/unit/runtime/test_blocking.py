"""Claims about what blocks a thread: a clock that only goes forward, and waits for later."""

from penstock.runtime.blocking import SteadyClock


def test_after_a_sleep_it_is_later_by_as_much() -> None:
    clock = SteadyClock()
    before_s = clock.now_s()
    clock.sleep(0.005)
    assert clock.now_s() - before_s >= 0.005
