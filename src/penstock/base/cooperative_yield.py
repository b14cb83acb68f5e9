"""Cooperative yielding for long-running work on the event loop.

Call `await yielding.draw()` after every few steps. It returns at once until the work has held the
loop for `HOLD_SECONDS`; then it sleeps, so that other tasks get several iterations of the loop and
not just one: a request needs more than one.
"""

import asyncio

HOLD_SECONDS = 0.0005
"""Maximum time between yields. The node's loop clock counts milliseconds: the time ends with the
millisecond in which it began."""


class CooperativeYield:
    def __init__(self, rest_s: float) -> None:
        self._now = asyncio.get_running_loop().time
        self._rest_s = rest_s
        self._due_s = self._now() + HOLD_SECONDS

    async def draw(self) -> None:
        if self._now() > self._due_s:
            await asyncio.sleep(self._rest_s)
            self._due_s = self._now() + HOLD_SECONDS
