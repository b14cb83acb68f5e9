"""`penstock.Worker`: queue handlers with retries, dead-letter queues and graceful stop.

    worker = Worker("localhost:9092", group="workers")

    @worker.task("jobs", retries=5, concurrency=16)
    async def handle(message: Message) -> None:
        await send_mail(message.json())

    worker.run()  # or from the shell: penstock worker module:worker

Owns the client, the threads of plain handlers, and the graceful stop. On SIGTERM or SIGINT, running
handlers may finish within `grace`; all other messages are released. A second signal ends the wait.
"""

import asyncio
import atexit
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Any, Protocol, TypeVar, Unpack, overload

import uvloop

from penstock.app.client import Client
from penstock.app.durations import Duration, seconds_of
from penstock.app.message import LogMessage, Message
from penstock.app.options import (
    ClientOptions,
    NoOptions,
    PublishOptions,
    default_brokers,
    refuse_unknown,
)
from penstock.app.outgoing import Payload, encode_headers
from penstock.app.publish import Published
from penstock.app.replies import SUFFIX, Replies
from penstock.app.schedules import MISSED, Missed, Schedule, ScheduleRunner, slots_of
from penstock.app.sync import SyncClient
from penstock.app.task import Handler, Reject, Retry, RetryBackoff, Task
from penstock.app.task_runner import Middleware, TaskRunner
from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Random, Workers
from penstock.client.admin.admin import GROUP_CONFIGS
from penstock.runtime.blocking import Mutex
from penstock.runtime.clock import SystemClock
from penstock.runtime.random import SystemRandom
from penstock.runtime.workers import ThreadWorkers

M = TypeVar("M", bound=Middleware)
T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger("penstock.worker")

THREADS_MAX = 256
_TASK_OPTIONS = (
    "retries",
    "backoff",
    "concurrency",
    "no_retry",
    "timeout",
    "order",
    "group",
    "prefetch",
    "then",
)
_CRON_OPTIONS = (
    "every",
    "timezone",
    "missed",
    "name",
    "topic",
    "retries",
    "backoff",
    "no_retry",
    "timeout",
    "then",
)
_POLL_S = 0.25
_SILENT_S = 1.0
"""Silence of all brokers, in seconds, after which the worker says that they are unreachable."""
_LIMIT = "share.delivery.count.limit"
_LIMIT_MIN = 2


class TaskDecorator(Protocol):
    """Decorator that makes a handler a task."""

    @overload
    def __call__(self, handler: Callable[[Message], Awaitable[R]], /) -> Task[Any, R]: ...

    @overload
    def __call__(self, handler: Callable[[Message], R], /) -> Task[Any, R]: ...

    @overload
    def __call__(self, handler: Callable[[T], Awaitable[R]], /) -> Task[T, R]: ...

    @overload
    def __call__(self, handler: Callable[[T], R], /) -> Task[T, R]: ...

    @overload
    def __call__(self, handler: Callable[[T, Message], Awaitable[R]], /) -> Task[T, R]: ...

    @overload
    def __call__(self, handler: Callable[[T, Message], R], /) -> Task[T, R]: ...


class ScheduleDecorator(Protocol):
    """Decorator that makes a function a scheduled task."""

    @overload
    def __call__(self, handler: Callable[[], R], /) -> Task[None, R]: ...

    @overload
    def __call__(self, handler: Callable[[datetime], R], /) -> Task[datetime, R]: ...

    @overload
    def __call__(self, handler: Callable[[Message], R], /) -> Task[Any, R]: ...


class Worker:
    """Runs tasks: declare them with `task`, then call `run()`. Other options go to its `Client`.

    Plain handlers run in `threads`: by default as many as their concurrency, at most 256.
    """

    def __init__(
        self,
        brokers: str | None = None,
        *,
        group: str,
        grace: Duration = 30.0,
        threads: Workers | None = None,
        **client_options: Unpack[ClientOptions],
    ) -> None:
        refuse_unknown(
            "Worker()",
            [name for name in client_options if name not in ClientOptions.__annotations__],
            ["group", "grace", "threads", *ClientOptions.__annotations__],
            dict.fromkeys(_TASK_OPTIONS, "Worker.task()"),
        )
        self.brokers = brokers
        """None: those of `PENSTOCK_BROKERS` when it starts, or else localhost:9092."""
        self.group = group
        self.tasks: list[Task[Any, Any]] = []
        self._grace_s = seconds_of(grace)
        self._random: Random = client_options.get("random") or SystemRandom()
        self._threads = threads
        self.client_options = client_options
        client_options["random"] = self._random
        self.schedules: list[Schedule] = []
        self.middlewares: list[Middleware] = []
        self._client: Client | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._replies: dict[str, Replies] = {}
        self._connected: AsyncExitStack | None = None
        self._blocking: tuple[str, SyncClient] | None = None
        self._mutex = Mutex()
        self._runners: list[TaskRunner] = []
        self._stopped: asyncio.Event | None = None
        self._grace_over: asyncio.Event | None = None
        self._stop_count = 0

    def task(
        self,
        topic: str | Sequence[str],
        *,
        retries: int = 5,
        backoff: RetryBackoff | Duration = 1.0,
        concurrency: int = 16,
        no_retry: Sequence[type[BaseException]] = (),
        timeout: Duration | None = None,
        order: str | None = None,
        group: str | None = None,
        prefetch: int | None = None,
        then: str | Task[Any, Any] | None = None,
        **unknown: Unpack[NoOptions],
    ) -> TaskDecorator:
        """Declares the decorated function as the handler of a queue's messages.

        The handler takes the message, or its payload as the type of its annotation, or both.

        `backoff` is the first pause between attempts, or a `RetryBackoff`. `no_retry` lists
        exceptions that dead-letter the message at once. `order="key"` handles the messages of one
        key one at a time, in order, across all workers, retries included. `then` is the task or
        topic that results are published to, unless they are None.
        """

        refuse_unknown("Worker.task()", unknown, _TASK_OPTIONS)

        return self._decorator(
            topic,
            retries,
            backoff,
            concurrency,
            no_retry,
            timeout,
            order,
            group,
            prefetch,
            then,
        )

    def cron(
        self,
        expression: str | None = None,
        *,
        every: Duration | None = None,
        timezone: str = "UTC",
        missed: Missed = "latest",
        name: str | None = None,
        topic: str | None = None,
        retries: int = 5,
        backoff: RetryBackoff | Duration = 1.0,
        no_retry: Sequence[type[BaseException]] = (),
        timeout: Duration | None = None,
        then: str | Task[Any, Any] | None = None,
        **unknown: Unpack[NoOptions],
    ) -> ScheduleDecorator:
        """Declares a handler that runs at the times of a cron expression, or `every` interval.

        Each slot is published exactly once, however many workers declare it, and handled by one of
        them, one slot after the other. `missed` says which slots are made up for after an outage of
        all workers: the "latest" one, "all", or none ("skip").

        The handler takes nothing, the slot as a `datetime`, or the message. Its messages go to
        `topic`, by default the schedule's `name` with the prefix of the worker's group.

        >>> @worker.cron("0 3 * * *", timezone="Europe/Berlin")
        ... async def clean() -> None: ...
        >>> @worker.cron(every="30s")
        ... async def measure(slot: datetime) -> None: ...
        """
        refuse_unknown("Worker.cron()", unknown, _CRON_OPTIONS)
        if missed not in MISSED:
            raise ValueError(f"missed={missed!r}: choose one of {', '.join(MISSED)}")
        slots = slots_of(expression, every, timezone)

        def declare(handler: Handler) -> Task[Any, Any]:
            own = name or getattr(handler, "__name__", "")
            full = f"{self.group}.{own}"
            if any(one.name == full for one in self.schedules):
                raise ValueError(f"two schedules are named {own!r}: pass name=")
            where = topic or f"{full}.schedule"
            declared = self._decorator(
                where, retries, backoff, 1, no_retry, timeout, "key", None, 1, then, True
            )(handler)
            self.schedules.append(Schedule(full, where, slots, missed))
            return declared

        return declare

    def _decorator(
        self,
        topic: str | Sequence[str],
        retries: int,
        backoff: RetryBackoff | Duration,
        concurrency: int,
        no_retry: Sequence[type[BaseException]],
        timeout: Duration | None,
        order: str | None,
        group: str | None,
        prefetch: int | None,
        then: str | Task[Any, Any] | None,
        is_scheduled: bool = False,
    ) -> Callable[[Handler], Task[Any, Any]]:
        def declare(handler: Handler) -> Task[Any, Any]:
            pauses = backoff if isinstance(backoff, RetryBackoff) else RetryBackoff(backoff)
            task: Task[Any, Any] = Task(
                handler,
                (topic,) if isinstance(topic, str) else tuple(topic),
                group or self.group,
                retries,
                pauses,
                concurrency,
                tuple(no_retry),
                None if timeout is None else seconds_of(timeout),
                order,
                concurrency if prefetch is None else prefetch,
                then,
                self,
                is_scheduled,
            )
            self.tasks.append(task)
            return task

        return declare

    def middleware(self, around: M) -> M:
        """Declares code around every handler; the first one declared is the outermost.

        >>> @worker.middleware
        ... async def timed(message: Message, call_next: CallNext) -> object:
        ...     with timer(message.topic):
        ...         return await call_next(message)
        """
        self.middlewares.append(around)
        return around

    # Publishing.

    @property
    def client(self) -> Client:
        """Client of the running worker, for handlers that publish."""
        if self._client is None:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                "the worker is not running: publish inside a handler, or in `async with worker:`; "
                "without asyncio, use `task.delay(...)`",
            )
        return self._client

    async def __aenter__(self) -> "Worker":
        """Connects without receiving messages, to publish and call tasks from other programs."""
        stack = AsyncExitStack()
        await stack.enter_async_context(self._connect())
        self._connected = stack
        return self

    async def __aexit__(self, *exc: object) -> None:
        stack, self._connected = self._connected, None
        if stack is not None:
            await stack.aclose()

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[Client]:
        """Client of this worker: one that is connected already, or a new one."""
        if self._client is not None:
            yield self._client
            return
        async with Client(self.brokers, **self.client_options) as client:
            self._client, self._loop = client, asyncio.get_running_loop()
            try:
                yield client
            finally:
                replies, self._replies = list(self._replies.values()), {}
                for one in replies:
                    await one.close()
                self._client = self._loop = None

    def publish_blocking(self, topic: str, payload: Payload, options: PublishOptions) -> Published:
        """Publishes from code without asyncio; see `Task.delay`."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise RuntimeError("delay() would block the event loop: use `await task.publish(...)`")
        client, loop = self._client, self._loop
        if client is not None and loop is not None:
            work = client.publish(topic, payload, **options)
            return asyncio.run_coroutine_threadsafe(work, loop).result()
        return self._blocking_client().publish(topic, payload, **options)

    def _blocking_client(self) -> SyncClient:
        brokers = default_brokers(self.brokers)
        with self._mutex:
            if self._blocking is not None and self._blocking[0] != brokers:
                self._blocking[1].close(drain=False)
                self._blocking = None
            if self._blocking is None:
                client = SyncClient(brokers, **self.client_options)
                client.connect()
                atexit.register(client.close)
                self._blocking = brokers, client
            return self._blocking[1]

    async def call(
        self, topic: str, payload: Payload, timeout_s: float, options: PublishOptions
    ) -> LogMessage:
        """Publishes a message and returns its reply; see `Task.call`."""
        client = self.client
        replies = self._replies.get(topic)
        if replies is None:
            replies = self._replies[topic] = Replies(client, topic + SUFFIX, self._random)
        own = encode_headers(options.get("headers"))

        async def publish(headers: dict[str, str]) -> None:
            options["headers"] = (*own, *headers.items())
            await client.publish(topic, payload, **options)

        return await replies.call(publish, timeout_s)

    # Running.

    def run(self) -> None:
        """Serves until SIGTERM or SIGINT."""

        async def serve() -> None:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.stop)
            await self.serve()

        uvloop.run(serve())

    def stop(self) -> None:
        """Stops receiving messages; a second call ends the wait for running handlers."""
        self._stop_count += 1
        if self._stopped is not None:
            self._stopped.set()
        for runner in self._runners:
            runner.stop()
        if self._stop_count > 1 and self._grace_over is not None:
            self._grace_over.set()

    async def serve(self, *, started: Callable[[], object] | None = None) -> None:
        """Serves until `stop()`, or until a task fails with a permanent error.

        Calls `started` once messages are received.
        """
        if not self.tasks:
            raise ValueError("worker has no tasks: decorate a handler with @worker.task(...)")
        self._stopped = asyncio.Event()
        self._grace_over = asyncio.Event()
        self._stop_count = 0
        plain = sum(task.concurrency for task in self.tasks if not task.is_async)
        threads = self._threads or ThreadWorkers(min(THREADS_MAX, max(1, plain)), name="task")
        async with self._connect() as client:
            try:
                await self._prepare(client)
                self._runners = [self._runner(client, task, threads) for task in self.tasks]
                await asyncio.gather(*(runner.reader.start() for runner in self._runners))
                if started is not None:
                    started()
                await self._run_tasks()
            finally:
                await self._finish()
                self._runners = []

    def _runner(self, client: Client, task: Task[Any, Any], threads: Workers) -> TaskRunner:
        reader = client.queue(
            task.topics,
            task.group,
            prefetch=task.prefetch,
            in_flight_max=2 * task.concurrency + task.prefetch,
            renew_for=float(365 * 86_400),
        )
        log.info("%s reads %s in group %s", task.name, ", ".join(task.topics), task.group)
        return TaskRunner(task, client, reader, threads, self._random, self.middlewares)

    def _scheduler(self, schedule: Schedule) -> ScheduleRunner:
        clock = self.client_options.get("clock") or SystemClock()
        log.info("schedule %s publishes to %s", schedule.name, schedule.topic)
        return ScheduleRunner(self.client.cluster, clock, self._random, schedule)

    async def _run_tasks(self) -> None:
        assert self._stopped is not None
        loop = asyncio.get_running_loop()
        running = [loop.create_task(runner.run()) for runner in self._runners]
        stopped = loop.create_task(self._stopped.wait())
        watching = loop.create_task(self._watch_brokers())
        schedulers = [self._scheduler(schedule) for schedule in self.schedules]
        running += [loop.create_task(scheduler.run()) for scheduler in schedulers]
        try:
            await asyncio.wait((*running, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for runner in self._runners:
                runner.stop()
            for scheduler in schedulers:
                scheduler.stop()
            stopped.cancel()
            watching.cancel()
            outcomes = await asyncio.gather(*running, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _watch_brokers(self) -> None:
        """Logs when no broker answers any task, and when one does again."""
        loop = asyncio.get_running_loop()
        brokers = default_brokers(self.brokers)
        gone_at: float | None = None
        while True:
            await asyncio.sleep(_POLL_S)
            silent_s = min(runner.reader.silent_s() for runner in self._runners)
            if gone_at is None and silent_s >= _SILENT_S:
                gone_at = loop.time() - silent_s
                errors = (runner.reader.last_error for runner in self._runners)
                error = next((one for one in errors if one is not None), "no reply")
                log.warning("broker %s is unreachable, retrying: %s", brokers, error)
            elif gone_at is not None and not silent_s:
                gone_s, gone_at = loop.time() - gone_at, None
                log.warning("broker %s is reachable again, after %.1f s", brokers, gone_s)

    async def _finish(self) -> None:
        """Waits for running handlers until the grace period or a second `stop()` ends it."""
        assert self._grace_over is not None
        loop = asyncio.get_running_loop()
        finishing = [loop.create_task(runner.finish(self._grace_s)) for runner in self._runners]
        over = loop.create_task(self._grace_over.wait())
        if finishing:
            # asyncio.wait, not gather: a cancelled gather that is never awaited logs an error.
            everything = loop.create_task(asyncio.wait(finishing))
            await asyncio.wait((everything, over), return_when=asyncio.FIRST_COMPLETED)
            if not everything.done():
                for one in finishing:
                    one.cancel()
                await everything
                finishing += [loop.create_task(runner.finish(0.0)) for runner in self._runners]
            await asyncio.wait(finishing)
            for one in finishing:
                if not one.cancelled() and (error := one.exception()) is not None:
                    log.warning("a task did not stop cleanly: %s", error)
        over.cancel()

    # Topics and group configs that the tasks need.

    async def _prepare(self, client: Client) -> None:
        for task in self.tasks:
            for topic in task.topics:
                await client.cluster.topic(topic, auto_create=True)
                if task.order is not None:
                    await client.configure_topic(topic, {"queue.order": task.order})
        for group in dict.fromkeys(task.group for task in self.tasks):
            deliveries = max(task.retries for task in self.tasks if task.group == group) + 1
            await self._raise_delivery_limit(client, group, max(_LIMIT_MIN, deliveries))

    async def _raise_delivery_limit(self, client: Client, group: str, deliveries: int) -> None:
        """Raises the group's delivery limit if the tasks may need more attempts."""
        entries = await client.admin.describe_configs(GROUP_CONFIGS, group, [_LIMIT])
        limit = next((int(one.value) for one in entries if one.name == _LIMIT and one.value), None)
        if limit is not None and limit >= deliveries:
            return
        try:
            await client.configure_group(group, {_LIMIT: str(deliveries)})
        except Refused as refused:
            raise Refused(
                refused.code,
                f"retries={deliveries - 1}: group {group!r} needs {_LIMIT}={deliveries}, "
                f"which the broker refuses: {refused.message}",
            ) from None


__all__ = ["Message", "Reject", "Retry", "RetryBackoff", "Worker"]
