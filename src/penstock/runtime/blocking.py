"""What code that blocks its thread needs: a time that only goes forward, sleep, and a mutex."""

import threading
import time
from typing import TypeAlias

Mutex: TypeAlias = threading.Lock


class SteadyClock:
    """Seconds since some time in the past, and waiting for later ones."""

    def now_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
