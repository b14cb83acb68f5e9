"""Retry with exponential backoff: capped, with full jitter.

`Backoff` computes the pauses, `Retry` keeps the state of one loop. Full jitter: each pause is a
random time from zero to a bound that doubles with every failure in a row. So nodes or clients that
lost the same broker or store reconnect spread over the whole interval, not all at once.

Jitter has a stream of its own in the Random port, so a simulated run replays exactly, and one more
retry does not change the ids that are drawn afterwards.
"""

import asyncio
from dataclasses import dataclass

from penstock.base.ports import Random

EXPONENT_MAX = 30
"""Limit of the exponent: some loops retry for days, and 2.0**1024 is not a float."""


def bound_s(base_s: float, cap_s: float, attempt: int) -> float:
    """Bound of the pause after failure number `attempt` in a row, counted from 0."""
    return min(cap_s, base_s * 2.0 ** min(attempt, EXPONENT_MAX))


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses of up to `base_s` after the first failure; the bound doubles up to `cap_s`."""

    random: Random
    base_s: float = 0.1
    cap_s: float = 1.0

    def delay_s(self, attempt: int) -> float:
        """Seconds to wait after failure number `attempt` in a row, counted from 0."""
        return self.random.jitter() * bound_s(self.base_s, self.cap_s, attempt)

    async def wait(self, attempt: int) -> None:
        await asyncio.sleep(self.delay_s(attempt))


class Retry:
    """Backoff state of one loop: bounds grow with its failures, and reset after a success."""

    __slots__ = ("_backoff", "failures")

    def __init__(self, random: Random, base_s: float, cap_s: float) -> None:
        self._backoff = Backoff(random, base_s, cap_s)
        self.failures = 0
        """Failures since the last success."""

    def succeeded(self) -> None:
        """Resets the backoff after a success."""
        self.failures = 0

    def next_s(self) -> float:
        """Counts a failure; returns the seconds to wait after it."""
        delay_s = self._backoff.delay_s(self.failures)
        self.failures += 1
        return delay_s

    async def pause(self) -> None:
        """Counts a failure, and waits."""
        await asyncio.sleep(self.next_s())
