"""The wall clock of this machine. May jump: durations come from `loop.time()`."""

import time

from penstock.base.ids import Millis


class SystemClock:
    def now_ms(self) -> Millis:
        return Millis(time.time_ns() // 1_000_000)
