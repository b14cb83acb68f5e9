"""Clock of the coordinators: a wall clock that never jumps.

Sessions and timeouts must not end because an administrator set the clock, yet stored times (when an
offset was committed, when a transaction began) must outlive the process. So this clock runs with
the loop's monotonic time from the initial wall-clock time, and approaches the wall clock by at most
a tenth of the time that passes.
"""

import asyncio
from collections.abc import Callable

from penstock.base.ports import WallClock

SLEW = 0.1
"""Maximum deviation from real time, as a fraction, while it approaches the wall clock."""


class SteadyTime:
    """Milliseconds since the epoch, never decreasing."""

    __slots__ = ("_at", "_clock", "_ms", "_now")

    def __init__(self, clock: WallClock, now_s: Callable[[], float] | None = None) -> None:
        """`now_s` replaces the loop's monotonic time, in seconds."""
        self._clock = clock
        self._now = now_s or asyncio.get_running_loop().time
        self._at = self._now()
        self._ms = float(clock.now_ms())

    def now_ms(self) -> int:
        at = self._now()
        elapsed_ms = (at - self._at) * 1000
        if elapsed_ms > 0:
            behind_ms = self._clock.now_ms() - (self._ms + elapsed_ms)
            step_ms = elapsed_ms * SLEW
            self._ms += elapsed_ms + min(max(behind_ms, -step_ms), step_ms)
            self._at = at
        return int(self._ms)
