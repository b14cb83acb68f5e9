"""One task of a running worker: takes messages while there is room, and has them handled.

At most `concurrency` handlers run at a time. Whatever a handler raises becomes a verdict about its
message and nothing else; a verdict that the broker does not take is logged, for the message comes
again by itself. A broker that is out of reach is waited for.

Stopping: nothing new is taken; handlers that run may finish until the grace is over, then what they
hold is given back for another worker, at once.
"""

import asyncio
import logging
from contextvars import copy_context

from penstock.app.message import Message
from penstock.app.queue_reader import QueueReader
from penstock.app.task import Task
from penstock.base.errors import Refused
from penstock.base.ports import Random, Workers
from penstock.base.retry import Retry
from penstock.client.errors import RETRIABLE

log = logging.getLogger("penstock.worker")

_WAIT_S = 30.0
_PAUSE_S = (1.0, 5.0)


class TaskRunner:
    """`await run()` until `stop()`; then `await finish(grace_s)`."""

    def __init__(self, task: Task, reader: QueueReader, workers: Workers, random: Random) -> None:
        self.task = task
        self.handled = 0
        self.failed = 0
        self._reader = reader
        self._workers = workers
        self._random = random
        self._retry = Retry(random, *_PAUSE_S)
        self._stopping = asyncio.Event()
        self._room = asyncio.Event()
        self._running: dict[asyncio.Task[None], Message] = {}

    def stop(self) -> None:
        self._stopping.set()
        self._room.set()

    async def run(self) -> None:
        """Raises what will not heal: a topic that is gone, a group that is closed to us."""
        loop = asyncio.get_running_loop()
        stopping = loop.create_task(self._stopping.wait())
        try:
            while not self._stopping.is_set():
                free = self.task.concurrency - len(self._running)
                if free <= 0:
                    self._room.clear()
                    await self._room.wait()
                    continue
                taking = loop.create_task(self._take(free))
                await asyncio.wait((taking, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not taking.done():
                    taking.cancel()
                    await asyncio.gather(taking, return_exceptions=True)
                    return
                for message in taking.result():
                    self._begin(message)
        finally:
            stopping.cancel()

    async def _take(self, count: int) -> list[Message]:
        try:
            taken = await self._reader.receive(count, _WAIT_S)
        except OSError as error:
            log.warning("%s waits for the broker: %s", self.task.name, error)
        except Refused as refused:
            if refused.code not in RETRIABLE:
                raise
            log.warning("%s waits for the broker: %s", self.task.name, refused)
        else:
            self._retry.succeeded()
            return taken
        await self._retry.pause()
        return []

    def _begin(self, message: Message) -> None:
        running = asyncio.get_running_loop().create_task(self._handle(message))
        self._running[running] = message
        running.add_done_callback(self._ended)

    def _ended(self, running: "asyncio.Task[None]") -> None:
        del self._running[running]
        self._room.set()

    async def finish(self, grace_s: float) -> None:
        """Waits for handlers as long as the grace lasts, then gives back what they hold."""
        if self._running:
            await asyncio.wait(tuple(self._running), timeout=grace_s)
        for running, message in list(self._running.items()):
            log.warning("%s did not finish in time; %r is given back", self.task.name, message)
            running.cancel()
            if not message.is_settled:
                self._settled(message, message.give_back())
        if self._running:
            await asyncio.wait(tuple(self._running), timeout=1.0)
        await self._reader.flush(timeout_s=5.0)

    # One message.

    async def _handle(self, message: Message) -> None:
        try:
            async with asyncio.timeout(self.task.timeout_s):
                if message.is_traced:
                    with message.span():
                        await self._call(message)
                else:
                    await self._call(message)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the message's failure
            self.failed += 1
            if not message.is_settled:
                self._fail(message, error)
            return
        self.handled += 1
        if not message.is_settled:
            self._settled(message, message.accept())

    async def _call(self, message: Message) -> None:
        if self.task.is_async:
            await self.task.handler(message)
        elif message.is_traced:
            # The thread goes on below the span that is current here.
            await self._workers.run(copy_context().run, self.task.handler, message)
        else:
            await self._workers.run(self.task.handler, message)

    def _fail(self, message: Message, error: Exception) -> None:
        task, attempt = self.task, message.attempt
        if task.is_final(error, attempt):
            log.error("%s gives %r up after %d tries: %r", task.name, message, attempt, error)
            self._settled(message, message.refuse(error))
            return
        delay_s = task.delay_s(error, attempt, self._random)
        log.warning(
            "%s failed with %r, try %d of %d, again in %.1f s: %r",
            task.name,
            message,
            attempt,
            task.retries + 1,
            delay_s,
            error,
        )
        self._settled(message, message.release(delay_s, error))

    def _settled(self, message: Message, verdict: "asyncio.Future[None] | Refused") -> None:
        """The next message need not wait for the broker's answer, but a bad one is told."""
        if isinstance(verdict, Refused):
            log.warning("%r: %s", message, verdict)
            return

        def answered(done: "asyncio.Future[None]") -> None:
            if not done.cancelled() and (error := done.exception()) is not None:
                log.warning("%r: %s", message, error)

        verdict.add_done_callback(answered)
