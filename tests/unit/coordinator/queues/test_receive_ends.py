"""Every wait ends, whatever the event loop's clock says when its timer fires.

Timers may fire a little early: asyncio's by its clock's resolution, uvloop's by up to half a
millisecond, since it counts whole ones. A wait that then reads the clock finds its deadline not
reached, and is not woken again. So these run on the real loops, with many deadlines.
"""

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import pytest
import uvloop

from penstock.broker.server.connection import ReadPause
from penstock.coordinator.queues.receive import ReceiveRequest, take
from tests.run_with import run_with
from tests.unit.broker.server.loops import in_loop

if TYPE_CHECKING:
    from penstock.coordinator.queues.open_queues import QueueCoordinator

WAITS = 4_000
PATIENCE_S = 20.0
LOOPS = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture(params=LOOPS)
def new_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    return LOOPS[request.param]


def waits_ms() -> list[int]:
    rng = random.Random(18)
    return [rng.randint(1, 400) for _ in range(WAITS)]


async def in_time(work: list[asyncio.Task[object]]) -> int:
    """Number of tasks that do not end."""
    _, late = await asyncio.wait(work, timeout=PATIENCE_S)
    for task in late:
        task.cancel()
    return len(late)


@run_with(in_loop, fixtures=["new_loop"])
async def test_every_wait_for_records_ends() -> None:
    nowhere = cast("QueueCoordinator", None)  # No queue is asked.

    async def poll(after_ms: int, wait_ms: int) -> object:
        await asyncio.sleep(after_ms / 7_000)
        return await take(nowhere, [], ReceiveRequest("a", 1, 1000, wait_ms=wait_ms))

    polls = (poll(at % 400, wait_ms) for at, wait_ms in enumerate(waits_ms()))
    assert await in_time([asyncio.ensure_future(one) for one in polls]) == 0


@run_with(in_loop, fixtures=["new_loop"])
async def test_every_pause_of_a_connection_ends() -> None:
    async def pause(after_ms: int, wait_ms: int) -> object:
        await asyncio.sleep(after_ms / 7_000)
        over = asyncio.Event()
        muting = ReadPause(over.set)
        muting.extend(wait_ms / 2000)
        muting.extend(wait_ms / 1000)
        return await over.wait()

    pauses = (pause(at % 400, wait_ms) for at, wait_ms in enumerate(waits_ms()))
    assert await in_time([asyncio.ensure_future(one) for one in pauses]) == 0
