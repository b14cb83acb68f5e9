"""`SystemClock` and `SystemRandom` are thin; that they are the real thing is all there is."""

import time

from penstock.runtime.clock import SystemClock
from penstock.runtime.random import SystemRandom


def test_clock_counts_milliseconds_since_1970() -> None:
    before = time.time_ns() // 1_000_000
    assert before <= SystemClock().now_ms() <= time.time_ns() // 1_000_000


def test_random_bytes_differ_and_jitter_stays_in_its_range() -> None:
    random = SystemRandom()
    assert len(random.random_bytes(16)) == 16
    assert random.random_bytes(16) != random.random_bytes(16)
    assert all(2.0 <= random.uniform(2.0, 3.0) <= 3.0 for _ in range(1000))
    assert all(0.0 <= random.jitter() < 1.0 for _ in range(1000))
    assert random.jitter() != SystemRandom().jitter()
