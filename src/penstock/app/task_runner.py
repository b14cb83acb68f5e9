"""Task runner: receives one task's messages and runs its handler, with bounded concurrency.

At most `concurrency` handlers run at a time. An exception of a handler settles its message and has
no other effect. A refused acknowledgement is logged: the broker redelivers the message anyway.
While the broker is unreachable, the runner retries with backoff.

Stop: no new messages are received. Running handlers may finish within the grace period; then their
messages are released for immediate redelivery to another worker.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from typing import Any, TypeAlias

from penstock.app.client import Client
from penstock.app.message import Message
from penstock.app.queue_reader import QueueReader
from penstock.app.replies import reply_headers
from penstock.app.task import Retry as TaskRetry
from penstock.app.task import Task
from penstock.base.errors import Refused
from penstock.base.ports import Random, Workers
from penstock.base.retry import Retry
from penstock.client.errors import RETRIABLE

CallNext: TypeAlias = Callable[[Message], Awaitable[Any]]
Middleware: TypeAlias = Callable[[Message, CallNext], Awaitable[Any]]
"""Code around handlers: awaits `call_next(message)` and returns its result."""

log = logging.getLogger("penstock.worker")

_WAIT_S = 30.0
_PAUSE_S = (1.0, 5.0)


def _around(middleware: Middleware, call_next: CallNext) -> CallNext:
    async def call(message: Message) -> Any:
        return await middleware(message, call_next)

    return call


class TaskRunner:
    """`await run()` until `stop()`; then `await finish(grace_s)`."""

    def __init__(
        self,
        task: Task[Any, Any],
        client: Client,
        reader: QueueReader,
        workers: Workers,
        random: Random,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self.task = task
        self.handled = 0
        self.failed = 0
        self._client = client
        self._reader = reader
        self._run_handler: CallNext = self._call
        for one in reversed(middleware):
            self._run_handler = _around(one, self._run_handler)
        self._workers = workers
        self._random = random
        self._retry = Retry(random, *_PAUSE_S)
        self._stopping = asyncio.Event()
        self._slot_freed = asyncio.Event()
        self._running: dict[asyncio.Task[None], Message] = {}

    @property
    def reader(self) -> QueueReader:
        return self._reader

    def stop(self) -> None:
        self._stopping.set()
        self._slot_freed.set()

    async def run(self) -> None:
        """Raises permanent errors: a deleted topic, a group without permission."""
        loop = asyncio.get_running_loop()
        stopping = loop.create_task(self._stopping.wait())
        try:
            while not self._stopping.is_set():
                free = self.task.concurrency - len(self._running)
                if free <= 0:
                    self._slot_freed.clear()
                    await self._slot_freed.wait()
                    continue
                receiving = loop.create_task(self._receive(free))
                await asyncio.wait((receiving, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not receiving.done():
                    receiving.cancel()
                    await asyncio.gather(receiving, return_exceptions=True)
                    return
                for message in receiving.result():
                    self._begin(message)
        finally:
            stopping.cancel()

    async def _receive(self, count: int) -> list[Message]:
        try:
            received = await self._reader.receive(count, _WAIT_S)
        except OSError as error:
            log.warning("%s: broker unavailable, retrying: %s", self.task.name, error)
        except Refused as refused:
            if refused.code not in RETRIABLE:
                raise
            log.warning("%s: broker unavailable, retrying: %s", self.task.name, refused)
        else:
            self._retry.succeeded()
            return received
        await self._retry.pause()
        return []

    def _begin(self, message: Message) -> None:
        running = asyncio.get_running_loop().create_task(self._handle(message))
        self._running[running] = message
        running.add_done_callback(self._ended)

    def _ended(self, running: "asyncio.Task[None]") -> None:
        del self._running[running]
        self._slot_freed.set()

    async def finish(self, grace_s: float) -> None:
        """Waits `grace_s` for running handlers, then releases the messages they still hold."""
        if self._running:
            await asyncio.wait(tuple(self._running), timeout=grace_s)
        for running, message in list(self._running.items()):
            log.warning(
                "%s did not finish within the grace period; releasing %r", self.task.name, message
            )
            running.cancel()
            if not message.is_settled:
                self._settled(message, message.give_back())
        if self._running:
            await asyncio.wait(tuple(self._running), timeout=1.0)
        await self._reader.flush(timeout_s=5.0)

    # One message.

    async def _handle(self, message: Message) -> None:
        try:
            with message.span():
                async with asyncio.timeout(self.task.timeout_s):
                    result = await self._run_handler(message)
                if not message.is_settled:
                    await self._publish_result(message, result)
        except Exception as error:  # noqa: BLE001 - any error is the message's failure
            self.failed += 1
            if not message.is_settled:
                await self._fail(message, error)
            return
        self.handled += 1
        if not message.is_settled:
            self._settled(message, message.accept())

    async def _publish_result(self, message: Message, result: Any) -> None:
        """Publishes the result for the next task, and for a caller that waits for it.

        A message that is handled again within the deduplication window is passed on once.
        """
        topic = self.task.then_topic
        if topic is not None and result is not None:
            origin = f"{message.topic}-{message.partition}-{message.offset}"
            await self._client.publish(topic, result, key=message.key, dedup_id=origin)
        if (reply := reply_headers(message)) is not None:
            await self._client.publish(reply[0], result, headers=reply[1])

    async def _call(self, message: Message) -> Any:
        arguments = self.task.arguments(message)
        if self.task.is_async:
            return await self.task.handler(*arguments)
        if message.is_traced:
            # The thread inherits the current span.
            return await self._workers.run(copy_context().run, self.task.handler, *arguments)
        return await self._workers.run(self.task.handler, *arguments)

    async def _fail(self, message: Message, error: Exception) -> None:
        task, attempt = self.task, message.attempt
        if task.is_final(error, attempt):
            log.error(
                "%s dead-letters %r after attempt %d: %r",
                task.name,
                message,
                attempt,
                error,
                exc_info=error,
            )
            if (reply := reply_headers(message, error)) is not None:
                try:
                    await self._client.publish(reply[0], None, headers=reply[1])
                except (Refused, OSError) as refused:
                    log.warning(
                        "%r: its caller could not be notified of the failure: %s", message, refused
                    )
            self._settled(message, message.refuse(error))
            return
        delay_s = task.delay_s(error, attempt, self._random)
        log.warning(
            "%s failed on %r, attempt %d of %d, retry in %.1f s: %r",
            task.name,
            message,
            attempt,
            task.retries + 1,
            delay_s,
            error,
            exc_info=None if isinstance(error, TaskRetry) else error,
        )
        self._settled(message, message.release(delay_s, error))

    def _settled(self, message: Message, answer: "asyncio.Future[None] | Refused") -> None:
        """Logs a refused acknowledgement, without waiting for the broker's answer."""
        if isinstance(answer, Refused):
            log.warning("%r: %s", message, answer)
            return

        def answered(done: "asyncio.Future[None]") -> None:
            if not done.cancelled() and (error := done.exception()) is not None:
                log.warning("%r: %s", message, error)

        answer.add_done_callback(answered)
