"""Pauses before something is tried again: exponential backoff, capped, with full jitter.

`Backoff` is the rule, `Retry` the state of one loop that follows it. Full jitter: each pause is
anything from zero to a bound that doubles with every failure in a row. Nodes or clients that have
lost the same broker or store are spread over the whole interval instead of coming back together.

Jitter has a stream of its own in the Random port, so a simulated run replays exactly, and one more
retry does not change which ids are drawn afterwards.
"""

import asyncio
from dataclasses import dataclass

from penstock.base.ports import Random

EXPONENT_MAX = 30
"""Some loops retry for days, and 2.0**1024 is not a float."""


def bound_s(base_s: float, cap_s: float, attempt: int) -> float:
    """The bound of the pause after failure number `attempt` in a row, counted from 0."""
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
    """The pauses of one loop: bounds grow with its failures, and start over after a success."""

    __slots__ = ("_backoff", "failures")

    def __init__(self, random: Random, base_s: float, cap_s: float) -> None:
        self._backoff = Backoff(random, base_s, cap_s)
        self.failures = 0
        """Failures since the last success."""

    def succeeded(self) -> None:
        """The next pause is a first one again."""
        self.failures = 0

    def next_s(self) -> float:
        """Counts a failure; answers how many seconds to wait after it."""
        delay_s = self._backoff.delay_s(self.failures)
        self.failures += 1
        return delay_s

    async def pause(self) -> None:
        """Counts a failure, and waits."""
        await asyncio.sleep(self.next_s())
