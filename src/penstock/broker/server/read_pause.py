"""Pause of reading from a connection whose client exceeded a quota (KIP-219)."""

import asyncio
from collections.abc import Callable


def _nothing() -> None:
    pass


class ReadPause:
    """Pause until the end of the last extension; calls `over` then."""

    __slots__ = ("_is_closed", "_over", "_timer", "_until_s", "is_on")

    def __init__(self, over: Callable[[], None]) -> None:
        self._over = over
        self._until_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.is_on = False

    def extend(self, seconds: float) -> None:
        """Extends the pause to at least this time from now."""
        if self._is_closed:
            return
        loop = asyncio.get_running_loop()
        self._until_s = max(self._until_s, loop.time() + seconds)
        if not self.is_on:
            self.is_on = True
            self._timer = loop.call_at(self._until_s, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._until_s:
            self._timer = loop.call_at(self._until_s, self._look)
        else:
            self.is_on = False
            self._over()

    def close(self) -> None:
        """Ends the pause without calling `over`: the connection is closed."""
        self._is_closed = True
        self._over = _nothing
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
