"""Rate limiters by token bucket: an average rate per second, and a maximum burst.

    limiter = RateLimiter(100, burst=20)
    async for message in client.queue("mails", group="senders"):
        await limiter.acquire()

Callers proceed in the order in which they ask. Each reserves its tokens at once and then sleeps:
a reservation ahead of time overdraws the bucket (`base.token_bucket`). A call that would have to
wait longer than `timeout` is refused at once and takes no tokens.
"""

import asyncio
from typing import Protocol

from penstock.app.durations import Duration, seconds_of
from penstock.base.token_bucket import TokenBucket
from penstock.runtime.blocking import Mutex, SteadyClock


class RateLimited(Exception):
    """The wait would exceed the caller's timeout; no tokens were taken."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"rate limit: the next call is allowed in {wait_s:.3f} s")
        self.wait_s = wait_s


class BlockingClock(Protocol):
    """Clock and sleep of `SyncRateLimiter`."""

    def now_s(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


def _bucket(rate_per_s: float, burst: float | None) -> TokenBucket:
    """Creates the bucket; `burst` defaults to one second's worth, and is at least one."""
    burst = max(1.0, rate_per_s) if burst is None else float(burst)
    if not 0 < rate_per_s < float("inf"):
        raise ValueError(f"invalid rate {rate_per_s}: pass a finite number above 0, per second")
    if burst < 1:
        raise ValueError(f"invalid burst {burst}: pass 1 or more, so that it lets one through")
    return TokenBucket(float(rate_per_s), burst)


def _reserve(bucket: TokenBucket, count: float, now_s: float, wait_s_max: float) -> float:
    """Takes tokens and returns the seconds to wait before they may be used.

    Raises RateLimited, and takes nothing, if that is longer than `wait_s_max`. `count` may exceed
    the burst: the caller then waits until that many tokens would have accrued.
    """
    if count < 0:
        raise ValueError(f"invalid count {count}: it cannot be negative")
    if (wait_s := bucket.wait_s(now_s, count)) > wait_s_max:
        raise RateLimited(wait_s)
    return bucket.take(count, now_s)


class RateLimiter:
    """Rate limiter for asyncio; uses the clock of the running loop."""

    def __init__(self, rate_per_s: float, burst: float | None = None) -> None:
        self._bucket = _bucket(rate_per_s, burst)

    async def acquire(self, count: float = 1, *, timeout: Duration | None = None) -> None:
        """Waits until `count` more calls are allowed."""
        loop = asyncio.get_running_loop()
        wait_s = _reserve(self._bucket, count, loop.time(), _seconds(timeout))
        if wait_s > 0:
            try:
                await asyncio.sleep(wait_s)
            except asyncio.CancelledError:
                self._bucket.give_back(count)
                raise

    def try_acquire(self, count: float = 1) -> bool:
        """Takes `count` tokens if they are available now. Returns True if it did."""
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
    """Rate limiter that any number of threads may share."""

    def __init__(
        self, rate_per_s: float, burst: float | None = None, *, clock: BlockingClock | None = None
    ) -> None:
        self._bucket = _bucket(rate_per_s, burst)
        self._clock = clock or SteadyClock()
        self._mutex = Mutex()

    def acquire(self, count: float = 1, *, timeout: Duration | None = None) -> None:
        """Waits until `count` more calls are allowed."""
        with self._mutex:
            wait_s = _reserve(self._bucket, count, self._clock.now_s(), _seconds(timeout))
        if wait_s > 0:
            self._clock.sleep(wait_s)

    def try_acquire(self, count: float = 1) -> bool:
        """Takes `count` tokens if they are available now. Returns True if it did."""
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
