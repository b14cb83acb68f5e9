"""Rate limits by token bucket: so many a second on average, and so many at once at most.

    limiter = RateLimiter(100, burst=20)
    async for message in client.queue("mails", group="senders"):
        await limiter.acquire()

Callers go in the order in which they ask, each told at once how long it has to wait: what is
reserved ahead of time overdraws the bucket (`base.token_bucket`). Bounds: `timeout` refuses at once
what would have to wait for longer, without taking anything.
"""

import asyncio
from typing import Protocol

from penstock.app.durations import Duration, seconds_of
from penstock.base.token_bucket import TokenBucket
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


def _bucket(rate_per_s: float, burst: float | None) -> TokenBucket:
    """`burst` is one second's worth unless told, and at least one."""
    burst = max(1.0, rate_per_s) if burst is None else float(burst)
    if not 0 < rate_per_s < float("inf"):
        raise ValueError(f"invalid rate {rate_per_s}: pass a finite number above 0, per second")
    if burst < 1:
        raise ValueError(f"invalid burst {burst}: pass 1 or more, so that it lets one through")
    return TokenBucket(float(rate_per_s), burst)


def _reserve(bucket: TokenBucket, count: float, now_s: float, wait_s_max: float) -> float:
    """Takes tokens and answers how long to wait before they may be used.

    Raises RateLimited, and takes nothing, if that is longer than `wait_s_max`. More than the burst
    at once is fine: it waits until so many would have come.
    """
    if count < 0:
        raise ValueError(f"invalid count {count}: it cannot be negative")
    if (wait_s := bucket.wait_s(now_s, count)) > wait_s_max:
        raise RateLimited(wait_s)
    return bucket.take(count, now_s)


class RateLimiter:
    """For asyncio, in the time of the loop that it is used on."""

    def __init__(self, rate_per_s: float, burst: float | None = None) -> None:
        self._bucket = _bucket(rate_per_s, burst)

    async def acquire(self, count: float = 1, *, timeout: Duration | None = None) -> None:
        """Returns when `count` more may be done."""
        loop = asyncio.get_running_loop()
        wait_s = _reserve(self._bucket, count, loop.time(), _seconds(timeout))
        if wait_s > 0:
            try:
                await asyncio.sleep(wait_s)
            except asyncio.CancelledError:
                self._bucket.give_back(count)
                raise

    def try_acquire(self, count: float = 1) -> bool:
        """Takes what is there now, or nothing."""
        try:
            _reserve(self._bucket, count, asyncio.get_running_loop().time(), 0.0)
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
        self._bucket = _bucket(rate_per_s, burst)
        self._clock = clock or SteadyClock()
        self._mutex = Mutex()

    def acquire(self, count: float = 1, *, timeout: Duration | None = None) -> None:
        """Returns when `count` more may be done."""
        with self._mutex:
            wait_s = _reserve(self._bucket, count, self._clock.now_s(), _seconds(timeout))
        if wait_s > 0:
            self._clock.sleep(wait_s)

    def try_acquire(self, count: float = 1) -> bool:
        """Takes what is there now, or nothing."""
        try:
            with self._mutex:
                _reserve(self._bucket, count, self._clock.now_s(), 0.0)
        except RateLimited:
            return False
        return True

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exc: object) -> None:
        pass


def _seconds(timeout: Duration | None) -> float:
    return float("inf") if timeout is None else seconds_of(timeout)
