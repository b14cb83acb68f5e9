"""The two event loops that code around real sockets is tried on."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvloop

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [
    asyncio.SelectorEventLoop,
    uvloop.new_event_loop,
]
on_both_loops = pytest.mark.parametrize("new_loop", LOOPS, ids=["asyncio", "uvloop"])


def in_loop(
    test: Callable[[], Awaitable[None]], new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Runs a test in a loop that `new_loop` makes."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(test())  # type: ignore[arg-type]
