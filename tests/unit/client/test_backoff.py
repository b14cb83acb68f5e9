"""Delays grow, stop growing, and differ between clients."""

from penstock.client.backoff import Backoff
from simulation.random import SimRandom


def test_delays_double_up_to_the_cap() -> None:
    backoff = Backoff(SimRandom(1), base_ms=100, cap_ms=1000, jitter=0.0)
    assert [backoff.delay_s(n) for n in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert backoff.delay_s(10_000) == 1.0


def test_jitter_stays_within_its_share() -> None:
    backoff = Backoff(SimRandom(1), base_ms=100, cap_ms=1000)
    delays = [backoff.delay_s(0) for _ in range(200)]
    assert all(0.08 <= delay <= 0.12 for delay in delays)
    assert len(set(delays)) > 100
