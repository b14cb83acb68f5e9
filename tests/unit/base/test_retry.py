"""Pauses before the next try: their bounds double up to a cap, and jitter covers all of them."""

import asyncio

import pytest

from penstock.base.retry import Backoff, Retry, bound_s
from simulation.loop import SimLoop, run
from simulation.random import SimRandom
from tests.run_with import run_with


def test_bounds_double_up_to_the_cap() -> None:
    assert [bound_s(0.1, 1.0, n) for n in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert bound_s(0.1, 1.0, 10_000) == 1.0


@pytest.mark.parametrize(("attempt", "bound"), [(0, 0.1), (1, 0.2), (2, 0.4), (50, 1.0)])
def test_jitter_is_spread_evenly_from_zero_to_the_bound(attempt: int, bound: float) -> None:
    backoff = Backoff(SimRandom(1), base_s=0.1, cap_s=1.0)
    delays = [backoff.delay_s(attempt) for _ in range(4_000)]
    assert all(0 <= delay < bound for delay in delays)
    tenths = [0] * 10
    for delay in delays:
        tenths[int(delay / bound * 10)] += 1
    assert all(300 < count < 500 for count in tenths), tenths


def test_loop_waits_longer_with_each_failure_until_it_succeeds() -> None:
    class Late:
        """Jitter that is always the longest."""

        random_bytes = SimRandom(1).random_bytes
        uniform = SimRandom(1).uniform

        def jitter(self) -> float:
            return 1.0

    retry = Retry(Late(), 0.1, 0.5)
    assert [retry.next_s() for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    assert retry.failures == 5
    retry.succeeded()
    assert [retry.next_s() for _ in range(2)] == [0.1, 0.2]


@run_with(run)
async def test_pausing_takes_as_long_as_the_jitter_says(loop: SimLoop) -> None:
    retry, twin = Retry(SimRandom(7), 0.1, 0.5), Retry(SimRandom(7), 0.1, 0.5)
    for _ in range(5):
        began_s = loop.time()
        await retry.pause()
        assert loop.time() - began_s == pytest.approx(twin.next_s())
    await asyncio.sleep(0)


def test_nodes_that_fail_together_do_not_come_back_together() -> None:
    firsts = {Retry(SimRandom(seed), 0.05, 2.0).next_s() for seed in range(50)}
    assert len(firsts) == 50


def test_retrying_does_not_change_which_ids_are_drawn() -> None:
    calm, troubled = SimRandom(3), SimRandom(3)
    for _ in range(10):
        troubled.jitter()
    assert calm.random_bytes(16) == troubled.random_bytes(16)
    assert calm.uniform(0, 1) == troubled.uniform(0, 1)
