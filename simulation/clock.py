"""A wall clock tied to the loop's virtual time, which a test can set, jump and let drift.

`epoch_ms` is where the calendar stands at virtual time zero. The loop's own time (durations) is
not touched by a jump or a drift, exactly as on a real machine.
"""

import asyncio

from penstock.base.ids import Millis

EPOCH_MS = Millis(1_767_225_600_000)  # 2026-01-01, so that simulated dates look like dates.


class SimClock:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        epoch_ms: int = EPOCH_MS,
        drift: float = 1.0,
    ) -> None:
        self._loop = loop
        self._offset_ms = epoch_ms
        self.drift = drift

    def now_ms(self) -> Millis:
        elapsed_ms = self._loop.time() * 1000 * self.drift if self._loop else 0
        return Millis(self._offset_ms + int(elapsed_ms))

    def jump(self, by_ms: int) -> None:
        """Forward or back, at once. Without a loop this is how time passes."""
        self._offset_ms += by_ms
