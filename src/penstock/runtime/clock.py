"""The wall clock of this machine, which may jump, and the time its threads have been running."""

import time

from penstock.base.ids import Millis


class SystemClock:
    def now_ms(self) -> Millis:
        return Millis(time.time_ns() // 1_000_000)


def thread_seconds() -> float:
    """How long the calling thread has been running, without its waits."""
    return time.thread_time()
