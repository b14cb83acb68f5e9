"""Prefetch limit of streams: capacity returns with settlements and ended leases."""

import asyncio

from penstock.coordinator.runtime.steady_clock import SteadyTime
from penstock.gateway.core.messages import ReceivedMessage
from penstock.gateway.core.prefetch import Prefetch
from simulation.clock import SimClock
from simulation.loop import SimLoop, run
from tests.run_with import run_with


def message(receipt: str, until_ms: int) -> ReceivedMessage:
    return ReceivedMessage("t", 0, 0, None, None, (), 0, 1, receipt, until_ms)


@run_with(run, seed=1)
async def test_capacity_returns_with_settlements_and_ended_leases(loop: SimLoop) -> None:
    time = SteadyTime(SimClock(loop))
    now_ms = time.now_ms()
    everyone: dict[str, Prefetch] = {}
    prefetch = Prefetch(everyone, 3, time)
    assert await prefetch.capacity() == 3
    rows = [message("a", now_ms + 9_000), message("b", now_ms + 9_000)]
    prefetch.handed_out([*rows, message("c", now_ms + 5_000)])
    assert everyone.keys() == {"a", "b", "c"}
    waiting = asyncio.ensure_future(prefetch.capacity())
    await asyncio.sleep(1)
    assert not waiting.done()
    prefetch.settled("a")
    assert await waiting == 1
    prefetch.handed_out([message("d", now_ms + 60_000)])
    assert await prefetch.capacity() == 1
    assert 4.9 < loop.time() < 5.2, "the lease of c has ended"
    prefetch.extended("b", 60_000)
    prefetch.handed_out([message("e", now_ms + 60_000)])
    waiting = asyncio.ensure_future(prefetch.capacity())
    await asyncio.sleep(10)
    assert not waiting.done()
    waiting.cancel()
    assert sorted(prefetch.close()) == ["b", "d", "e"]
    assert not everyone
