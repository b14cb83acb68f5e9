"""A task of a worker: a handler for the messages of a queue, and what a failure of it means.

A handler that returns has done its message. One that raises has not: the message comes again after
a pause that grows, until `retries` are used up, and becomes a dead letter then. What can never
succeed goes there at once: exceptions listed in `no_retry`, and `Reject`. `Retry` asks for another
try at a time of the handler's own choosing.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from penstock.app.durations import Duration, seconds_of
from penstock.app.message import Message
from penstock.base.ports import Random
from penstock.base.retry import bound_s

Handler: TypeAlias = Callable[[Message], Any]
"""`async def` or plain `def`; plain ones run in threads."""


class Reject(Exception):
    """Raised by a handler: this message can never succeed; to the dead letters with it."""


class Retry(Exception):
    """Raised by a handler: not now; again after `delay`, or after the task's backoff.

    >>> raise Retry("the printer is out of paper", delay="10m")
    """

    def __init__(self, reason: str = "", *, delay: Duration | None = None) -> None:
        super().__init__(reason)
        self.delay_s = None if delay is None else seconds_of(delay)


@dataclass(frozen=True, slots=True)
class RetryBackoff:
    """Pauses between tries: `base`, doubled each time up to `cap`, and up to a base of jitter."""

    base: Duration = 1.0
    cap: Duration = 300.0

    def delay_s(self, attempt: int, random: Random) -> float:
        """Seconds to wait after the failure of try number `attempt`, counted from 1."""
        base_s, cap_s = seconds_of(self.base), seconds_of(self.cap)
        return bound_s(base_s, cap_s, attempt - 1) + random.uniform(0, base_s)


@dataclass(frozen=True, slots=True)
class Task:
    """What `@worker.task(...)` declares."""

    handler: Handler
    topics: tuple[str, ...]
    group: str
    retries: int
    backoff: RetryBackoff
    concurrency: int
    no_retry: tuple[type[BaseException], ...]
    timeout_s: float | None
    order: str | None
    prefetch: int

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise ValueError(f"retries={self.retries}: 0 or more")
        if self.concurrency < 1:
            raise ValueError(f"concurrency={self.concurrency}: 1 or more")
        if self.order not in (None, "none", "key", "partition"):
            raise ValueError(f"order={self.order!r}: choose 'none', 'key' or 'partition'")

    @property
    def name(self) -> str:
        return getattr(self.handler, "__qualname__", repr(self.handler))

    @property
    def is_async(self) -> bool:
        called = self.handler
        return inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(
            getattr(called, "__call__", None)  # noqa: B004 - an object with an async __call__
        )

    def is_final(self, error: BaseException, attempt: int) -> bool:
        """Whether the message is given up after this failure."""
        if isinstance(error, Retry):
            return False
        return isinstance(error, (Reject, *self.no_retry)) or attempt > self.retries

    def delay_s(self, error: BaseException, attempt: int, random: Random) -> float:
        if isinstance(error, Retry) and error.delay_s is not None:
            return error.delay_s
        return self.backoff.delay_s(attempt, random)
