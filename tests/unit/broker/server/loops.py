"""The two event loops that code around real sockets is tried on."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [
    asyncio.SelectorEventLoop,
    uvloop.new_event_loop,
]
on_both_loops = pytest.mark.parametrize("new_loop", LOOPS, ids=["asyncio", "uvloop"])


def run(new_loop: Callable[[], asyncio.AbstractEventLoop], main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main)
