"""Wall clock based on the loop's virtual time, which a test can set and let drift.

`epoch_ms` is the wall-clock time at virtual time zero. Jumps and drift do not affect the loop's own
time (durations), as on a real machine.
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
        """Moves the clock forward or back. Without a loop, time passes only this way."""
        self._offset_ms += by_ms
