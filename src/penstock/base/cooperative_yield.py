"""Long work on the loop, done in small pieces: others wait for one of them and not for all.

`await breath.draw()` after every few steps. It returns at once until the loop has been held for
`HOLD_SECONDS`; then it rests, so that whoever waits has several turns of the loop and not just one:
a request takes more than one.
"""

import asyncio

HOLD_SECONDS = 0.0005
"""The clock of the node's loop counts milliseconds: a hold ends with the one that it began in."""


class CooperativeYield:
    def __init__(self, rest_s: float) -> None:
        self._now = asyncio.get_running_loop().time
        self._rest_s = rest_s
        self._due_s = self._now() + HOLD_SECONDS

    async def draw(self) -> None:
        if self._now() > self._due_s:
            await asyncio.sleep(self._rest_s)
            self._due_s = self._now() + HOLD_SECONDS
