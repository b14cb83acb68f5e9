"""Rate limits by token bucket: so many a second on average, and so many at once at most.

    limiter = RateLimiter(100, burst=20)
    async for message in client.queue("mails", group="senders"):
        await limiter.acquire()

The bucket is pure: time comes in, a wait comes out. It lets callers go in the order in which they
asked, each told at once how long it has to wait, so nobody is overtaken and nobody polls. Bounds:
`timeout` refuses at once what would have to wait for longer, without taking anything.
"""

import asyncio
from typing import Protocol

from penstock.app.durations import Duration, seconds_of
from penstock.runtime.blocking import Mutex, SteadyClock


class RateLimited(Exception):
    """It would have to wait for longer than the caller allows; nothing was taken."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"the rate limit allows it in {wait_s:.3f} s")
        self.wait_s = wait_s


class BlockingClock(Protocol):
    """What `SyncRateLimiter` waits by."""

    def now_s(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class TokenBucket:
    """Fills with `rate_per_s` tokens a second, up to `burst`; begins full.

    What is reserved ahead of time makes it negative: those who come later wait for longer.
    """

    __slots__ = ("_at_s", "_tokens", "burst", "rate_per_s")

    def __init__(self, rate_per_s: float, burst: float | None = None) -> None:
        """`burst` is one second's worth unless told, and at least one."""
        burst = max(1.0, rate_per_s) if burst is None else float(burst)
        if not 0 < rate_per_s < float("inf"):
            raise ValueError(f"a rate of {rate_per_s} a second: it must be above 0")
        if burst < 1:
            raise ValueError(f"a burst of {burst}: it must let at least one through")
        self.rate_per_s = float(rate_per_s)
        self.burst = burst
        self._tokens = burst
        self._at_s: float | None = None

    def available(self, now_s: float) -> float:
        """Tokens that are there now; negative while some have been reserved ahead."""
        self._fill(now_s)
        return self._tokens

    def reserve(self, count: float, now_s: float, wait_s_max: float = float("inf")) -> float:
        """Takes tokens and answers how long to wait before they may be used.

        Raises RateLimited, and takes nothing, if that is longer than `wait_s_max`. More than
        `burst` at once is fine: it waits until so many would have come.
        """
        if count < 0:
            raise ValueError(f"{count} tokens: it cannot be negative")
        self._fill(now_s)
        wait_s = max(0.0, (count - self._tokens) / self.rate_per_s)
        if wait_s > wait_s_max:
            raise RateLimited(wait_s)
        self._tokens -= count
        return wait_s

    def give_back(self, count: float) -> None:
        """What was reserved is not used after all."""
        self._tokens = min(self.burst, self._tokens + count)

    def _fill(self, now_s: float) -> None:
        # A clock that goes back brings nothing, and takes nothing away.
        if self._at_s is not None and now_s > self._at_s:
            self._tokens = min(self.burst, self._tokens + (now_s - self._at_s) * self.rate_per_s)
        self._at_s = now_s if self._at_s is None else max(self._at_s, now_s)


class RateLimiter:
    """For asyncio, in the time of the loop that it is used on."""

    def __init__(self, rate_per_s: float, burst: float | None = None) -> None:
        self._bucket = TokenBucket(rate_per_s, burst)

    async def acquire(self, count: float = 1, *, timeout: Duration | None = None) -> None:
        """Returns when `count` more may be done."""
        loop = asyncio.get_running_loop()
        wait_s = self._bucket.reserve(count, loop.time(), _seconds(timeout))
        if wait_s > 0:
            try:
                await asyncio.sleep(wait_s)
            except asyncio.CancelledError:
                self._bucket.give_back(count)
                raise

    def try_acquire(self, count: float = 1) -> bool:
        """Takes what is there now, or nothing."""
        try:
            self._bucket.reserve(count, asyncio.get_running_loop().time(), 0.0)
        except RateLimited:
            return False
        return True

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *exc: object) -> None:
        pass


class SyncRateLimiter:
    """For threads, any number of which may share it."""

    def __init__(
        self, rate_per_s: float, burst: float | None = None, *, clock: BlockingClock | None = None
    ) -> None:
        self._bucket = TokenBucket(rate_per_s, burst)
        self._clock = clock or SteadyClock()
        self._mutex = Mutex()

    def acquire(self, count: float = 1, *, timeout: Duration | None = None) -> None:
        """Returns when `count` more may be done."""
        with self._mutex:
            wait_s = self._bucket.reserve(count, self._clock.now_s(), _seconds(timeout))
        if wait_s > 0:
            self._clock.sleep(wait_s)

    def try_acquire(self, count: float = 1) -> bool:
        """Takes what is there now, or nothing."""
        try:
            with self._mutex:
                self._bucket.reserve(count, self._clock.now_s(), 0.0)
        except RateLimited:
            return False
        return True

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exc: object) -> None:
        pass


def _seconds(timeout: Duration | None) -> float:
    return float("inf") if timeout is None else seconds_of(timeout)
