"""Tools for code that blocks its thread: a monotonic clock, sleep, and a mutex."""

import threading
import time
from typing import TypeAlias

Mutex: TypeAlias = threading.Lock


class SteadyClock:
    """Monotonic clock in seconds, with a blocking sleep."""

    def now_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
