"""Results of tasks: a reply topic, and the calls that wait for their replies.

`task.call(payload)` publishes a message that names a reply topic and carries a random id. The
worker that handles it publishes the result there, with the id, before it acknowledges the message;
after the last failed attempt it publishes the error instead. Each calling process reads the whole
reply topic from its current end on, and keeps the replies to its own calls.

A message that is handled twice is answered twice; the first reply counts. The reply topic keeps its
records for `RETENTION_MS`. Bounds: `WAITING_MAX` calls wait at a time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from penstock.app.log_reader import LogReader
from penstock.app.message import LogMessage, Received
from penstock.app.outgoing import Headers
from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Random

if TYPE_CHECKING:
    from penstock.app.client import Client

REPLY_TO = "penstock-reply-to"
CORRELATION_ID = "penstock-correlation-id"
ERROR_CLASS = "penstock-reply-error-class"
ERROR_MESSAGE = "penstock-reply-error-message"
SUFFIX = ".replies"
RETENTION_MS = 3_600_000
WAITING_MAX = 10_000
ERROR_CHARS_MAX = 512


class TaskFailed(Exception):
    """The task that was called failed for the last time; the message is dead-lettered."""

    def __init__(self, error_class: str, error_message: str) -> None:
        super().__init__(f"{error_class}: {error_message}")
        self.error_class = error_class
        self.error_message = error_message


def reply_headers(message: Received, error: Exception | None = None) -> tuple[str, Headers] | None:
    """Returns reply topic and headers for the reply to a message; None without a waiting caller."""
    if not message.header_pairs:
        return None
    topic, correlation_id = message.header(REPLY_TO), message.header(CORRELATION_ID)
    if not topic or not correlation_id:
        return None
    headers: dict[str, str | bytes | int | None] = {CORRELATION_ID: correlation_id}
    if error is not None:
        headers[ERROR_CLASS] = type(error).__qualname__
        headers[ERROR_MESSAGE] = str(error)[:ERROR_CHARS_MAX]
    return topic, headers


class Replies:
    """Replies to the calls of one client, from one reply topic."""

    def __init__(self, client: "Client", topic: str, random: Random) -> None:
        self.topic = topic
        self._client = client
        self._random = random
        self._waiting: dict[str, asyncio.Future[LogMessage]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()

    async def call(
        self, publish: Callable[[dict[str, str]], Awaitable[object]], timeout_s: float
    ) -> LogMessage:
        """Returns the reply to what `publish` publishes with the given headers.

        Raises TimeoutError, or TaskFailed if the reply is an error.
        """
        if len(self._waiting) >= WAITING_MAX:
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{WAITING_MAX} calls wait for replies of {self.topic}: wait for some of them",
            )
        correlation_id = self._random.random_bytes(16).hex()
        async with asyncio.timeout(timeout_s):
            await self._start()
            reply: asyncio.Future[LogMessage] = asyncio.get_running_loop().create_future()
            self._waiting[correlation_id] = reply
            try:
                await publish({REPLY_TO: self.topic, CORRELATION_ID: correlation_id})
                found = await reply
            finally:
                self._waiting.pop(correlation_id, None)
        if ERROR_CLASS in found.headers:
            raise TaskFailed(found.header(ERROR_CLASS), found.header(ERROR_MESSAGE))
        return found

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _start(self) -> None:
        """Reads from the topic's current end on; again if an earlier reader failed."""
        async with self._starting:
            if self._reading is not None and not self._reading.done():
                return
            await self._client.create_topic(self.topic, retention_ms=RETENTION_MS)
            reader = self._client.consume(self.topic, start="latest")
            await reader.start()
            self._reading = asyncio.get_running_loop().create_task(self._read(reader))

    async def _read(self, reader: LogReader) -> None:
        try:
            async with reader:
                async for message in reader:
                    waiting = self._waiting.get(message.header(CORRELATION_ID))
                    if waiting is not None and not waiting.done():
                        waiting.set_result(message)
        except (Refused, OSError) as error:
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(error)
