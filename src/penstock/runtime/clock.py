"""Wall clock of this machine, which may jump, and CPU time of its threads."""

import time

from penstock.base.ids import Millis


class SystemClock:
    def now_ms(self) -> Millis:
        return Millis(time.time_ns() // 1_000_000)


def thread_seconds() -> float:
    """CPU time of the calling thread, without its waits."""
    return time.thread_time()
