"""Task of a worker: a handler for a queue's messages, and its retry policy.

A message is acknowledged when its handler returns. When the handler raises, the message is
redelivered after a growing backoff until `retries` are used up; then it moves to the dead-letter
queue. `Reject`, a payload that is not valid for the handler's annotation, and exceptions in
`no_retry` are not retryable: the message is dead-lettered at once. `Retry` retries after a delay of
the handler's choice.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, Unpack

from penstock.app.client import Client
from penstock.app.durations import Duration, seconds_of
from penstock.app.message import LogMessage
from penstock.app.options import PublishOptions
from penstock.app.outgoing import Payload
from penstock.app.payloads import Arguments, InvalidPayload, arguments_of, result_decoder_of
from penstock.app.publish import Published
from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Random
from penstock.base.retry import bound_s

Handler: TypeAlias = Callable[..., Any]
"""`async def` or plain `def`; plain ones run in threads.

Takes the message, its payload as the annotated type, or both; see `penstock.app.payloads`.
"""

T = TypeVar("T")
R = TypeVar("R")


class TaskHost(Protocol):
    """Worker of a task, as far as publishing its messages needs it."""

    @property
    def client(self) -> Client: ...

    def publish_blocking(
        self, topic: str, payload: Payload, options: PublishOptions
    ) -> Published: ...

    async def call(
        self, topic: str, payload: Payload, timeout_s: float, options: PublishOptions
    ) -> LogMessage: ...


class Reject(Exception):
    """Raised by a handler: not retryable, move the message to the dead-letter queue."""


class Retry(Exception):
    """Raised by a handler: redeliver after `delay`, or after the task's backoff.

    >>> raise Retry("the printer is out of paper", delay="10m")
    """

    def __init__(self, reason: str = "", *, delay: Duration | None = None) -> None:
        super().__init__(reason)
        self.delay_s = None if delay is None else seconds_of(delay)


@dataclass(frozen=True, slots=True)
class RetryBackoff:
    """Backoff between attempts: `base`, doubled up to `cap`, plus jitter of up to `base`."""

    base: Duration = 1.0
    cap: Duration = 300.0

    def delay_s(self, attempt: int, random: Random) -> float:
        """Seconds to wait after attempt number `attempt` failed, counted from 1."""
        base_s, cap_s = seconds_of(self.base), seconds_of(self.cap)
        return bound_s(base_s, cap_s, attempt - 1) + random.uniform(0, base_s)


@dataclass(frozen=True, slots=True)
class Task(Generic[T, R]):
    """Declaration made by `@worker.task(...)`; called like a function, it calls its handler.

    `T` is the type of its payload, `R` that of its result.
    """

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
    then: "str | Task[Any, Any] | None" = None
    """Topic or task that results are published to."""
    host: TaskHost | None = field(default=None, repr=False, compare=False)
    is_scheduled: bool = False
    """True if its messages come from a schedule: the handler may take no argument."""
    arguments: Arguments = field(init=False)

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise ValueError(f"retries={self.retries}: pass 0 or more")
        if self.concurrency < 1:
            raise ValueError(f"concurrency={self.concurrency}: pass 1 or more")
        if self.order not in (None, "none", "key", "partition"):
            raise ValueError(f"order={self.order!r}: choose 'none', 'key' or 'partition'")
        object.__setattr__(
            self, "arguments", arguments_of(self.handler, may_be_none=self.is_scheduled)
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.handler(*args, **kwargs)

    async def publish(self, payload: T, **options: Unpack[PublishOptions]) -> Published:
        """Publishes a message for this task, and waits until it is on disk.

        Takes the options of `Client.publish`. Within a running worker, or in `async with worker:`.

        >>> await send_mail.publish({"to": "ann"}, delay="15m", priority=5)
        """
        return await self._host().client.publish(self.topics[0], payload, **options)

    def delay(self, payload: T, **options: Unpack[PublishOptions]) -> Published:
        """Like `publish`, but blocks: for code without asyncio. Connects on its first call."""
        return self._host().publish_blocking(self.topics[0], payload, options)

    async def call(
        self, payload: T, *, timeout: Duration = 30.0, **options: Unpack[PublishOptions]
    ) -> R:
        """Publishes a message and waits for the result of its handler.

        Raises `TaskFailed` after the last failed attempt, and TimeoutError after `timeout`. The
        message may still be handled then. Within a running worker, or in `async with worker:`.

        >>> price = await quote.call({"item": 7}, timeout="5s")
        """
        reply = await self._host().call(self.topics[0], payload, seconds_of(timeout), options)
        result: R = None if reply.is_tombstone else result_decoder_of(self.handler)(reply.payload)  # type: ignore[assignment]
        return result

    def _host(self) -> TaskHost:
        if self.host is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{self.name} belongs to no worker")
        return self.host

    @property
    def then_topic(self) -> str | None:
        return self.then.topics[0] if isinstance(self.then, Task) else self.then

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
        """True if the message is dead-lettered after this failure."""
        if isinstance(error, Retry):
            return False
        return isinstance(error, (Reject, InvalidPayload, *self.no_retry)) or attempt > self.retries

    def delay_s(self, error: BaseException, attempt: int, random: Random) -> float:
        if isinstance(error, Retry) and error.delay_s is not None:
            return error.delay_s
        return self.backoff.delay_s(attempt, random)
