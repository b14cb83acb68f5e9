"""How long to wait before the next try: exponential, capped, with jitter.

Jitter comes from the Random port, so a simulated run replays exactly. Without it, clients that
lost the same broker would all come back in the same millisecond.
"""

import asyncio
from dataclasses import dataclass

from penstock.base.ports import Random


@dataclass(frozen=True, slots=True)
class Backoff:
    random: Random
    base_ms: float = 50.0
    cap_ms: float = 1000.0
    jitter: float = 0.2
    """The share of the delay by which it may be shorter or longer."""

    def delay_s(self, attempt: int) -> float:
        """Seconds to wait after failure number `attempt`, counted from 0."""
        # The exponent is bounded: a producer may retry for minutes, and 2**1000 is no float.
        delay_ms = min(self.cap_ms, self.base_ms * 2.0 ** min(attempt, 30))
        return delay_ms * self.random.uniform(1 - self.jitter, 1 + self.jitter) / 1000

    async def wait(self, attempt: int) -> None:
        await asyncio.sleep(self.delay_s(attempt))
