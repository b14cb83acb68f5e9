"""Retry topics for a plain consumer group: `orders.retry.1`, `.2`, ..., then `orders.dlq`.

For topics read as a log, on any broker that speaks Kafka's protocol. A message that fails is copied
to the next level's topic and its offset is committed, so it does not block the messages behind it.
Each level has its own delay, counted from the copy's timestamp. After the last level, and after
`Reject` or an exception in `no_retry`, the message goes to `orders.dlq` with the usual headers of a
dead-lettered message.

Delivery is at least once: the copy is acknowledged before the offset is committed. A key's order
holds within each level, not between levels; if it matters, use a queue with `order="key"`.

    orders = RetryTopics(client, "orders", group="billing", delays=("10s", "1m", "10m"))
    await orders.run(handle)
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from penstock.app.client import Client
from penstock.app.durations import Duration, ms_of
from penstock.app.log_reader import LogReader
from penstock.app.message import LogMessage, show_traceback
from penstock.app.outgoing import RecordHeaders
from penstock.app.payloads import InvalidPayload
from penstock.app.task import Reject
from penstock.base.ports import WallClock
from penstock.runtime.clock import SystemClock
from penstock.state.queues import dead_letter_format

LogHandler: TypeAlias = Callable[[LogMessage], Awaitable[None]]

log = logging.getLogger("penstock.worker")

LEVELS_MAX = 10
WAITING_MAX = 1_000
"""Maximum messages of a level that wait for their delay, per partition."""
_OWN = "penstock-retry-"
_ATTEMPTS = _OWN + "attempts"
_FIRST_FAILURE = _OWN + "first-failure"
_TOPIC, _PARTITION, _OFFSET, _TIMESTAMP = (
    _OWN + name for name in ("topic", "partition", "offset", "timestamp")
)


class RetryTopics:
    """One topic, its retry levels and its dead-letter topic, read by one group."""

    def __init__(
        self,
        client: Client,
        topic: str,
        group: str,
        *,
        delays: Sequence[Duration] = ("10s", "1m", "10m"),
        no_retry: Sequence[type[BaseException]] = (),
        partitions: int = -1,
        clock: WallClock | None = None,
    ) -> None:
        if len(delays) > LEVELS_MAX:
            raise ValueError(f"{len(delays)} delays: the maximum is {LEVELS_MAX} levels")
        self.topic = topic
        self.group = group
        self.dead_letters = f"{topic}.dlq"
        self.levels = [f"{topic}.retry.{number + 1}" for number in range(len(delays))]
        self._client = client
        self._delays_ms = [ms_of(delay) for delay in delays]
        self._no_retry: tuple[type[BaseException], ...] = (Reject, InvalidPayload, *no_retry)
        self._partitions = partitions
        self._clock = clock or SystemClock()

    async def run(self, handler: LogHandler) -> None:
        """Reads the topic and every level until cancelled, or until an error is permanent."""
        await self._client.cluster.topic(self.topic, auto_create=True)
        for name in (*self.levels, self.dead_letters):
            await self._client.create_topic(name, self._partitions)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read(self.topic, 0, handler))
            for number, name in enumerate(self.levels, 1):
                tasks.create_task(self._read(name, number, handler))

    async def _read(self, topic: str, level: int, handler: LogHandler) -> None:
        """Reads one level; partitions in parallel, since each waits for its own next message."""
        # One group per level, so that its members need not subscribe to all topics.
        group = self.group if level == 0 else f"{self.group}.retry.{level}"
        async with (
            self._client.consume(topic, group, auto_commit=False) as reader,
            asyncio.TaskGroup() as tasks,
        ):
            queues: dict[int, asyncio.Queue[LogMessage]] = {}
            async for message in reader:
                queue = queues.get(message.partition)
                if queue is None:
                    queue = queues[message.partition] = asyncio.Queue(WAITING_MAX)
                    tasks.create_task(self._serve(reader, queue, level, handler))
                await queue.put(message)

    async def _serve(
        self,
        reader: LogReader,
        queue: "asyncio.Queue[LogMessage]",
        level: int,
        handler: LogHandler,
    ) -> None:
        while True:
            message = await queue.get()
            if level:
                due_ms = message.timestamp_ms + self._delays_ms[level - 1]
                await asyncio.sleep(max(0, due_ms - self._clock.now_ms()) / 1000)
            await self._handle(message, level, handler)
            await reader.commit_through(message)

    async def _handle(self, message: LogMessage, level: int, handler: LogHandler) -> None:
        try:
            with message.span():
                await handler(message)
        except Exception as error:  # noqa: BLE001 - any error is the message's failure
            is_final = isinstance(error, self._no_retry) or level >= len(self.levels)
            target = self.dead_letters if is_final else self.levels[level]
            log.warning("%r failed with %r; copied to %s", message, error, target)
            headers = self._headers(message, level, error, is_final=is_final)
            await self._client.publish(target, message.value, key=message.key, headers=headers)

    def _headers(
        self, message: LogMessage, level: int, error: Exception, *, is_final: bool
    ) -> RecordHeaders:
        """The message's own headers, and those that describe its origin and failure."""
        now = str(self._clock.now_ms())
        origin = {
            _TOPIC: message.header(_TOPIC, message.topic),
            _PARTITION: message.header(_PARTITION, str(message.partition)),
            _OFFSET: message.header(_OFFSET, str(message.offset)),
            _TIMESTAMP: message.header(_TIMESTAMP, str(message.timestamp_ms)),
            _FIRST_FAILURE: message.header(_FIRST_FAILURE, now),
            _ATTEMPTS: str(level + 1),
        }
        if is_final:
            texts = {
                dead_letter_format.TOPIC: origin[_TOPIC],
                dead_letter_format.PARTITION: origin[_PARTITION],
                dead_letter_format.OFFSET: origin[_OFFSET],
                dead_letter_format.TIMESTAMP: origin[_TIMESTAMP],
                dead_letter_format.GROUP: self.group,
                dead_letter_format.ATTEMPTS: origin[_ATTEMPTS],
                dead_letter_format.ERROR_CLASS: type(error).__qualname__,
                dead_letter_format.ERROR_MESSAGE: str(error)[:512],
                dead_letter_format.FIRST_FAILURE: origin[_FIRST_FAILURE],
                dead_letter_format.LAST_FAILURE: now,
            }
            if traceback := show_traceback(error):
                texts[dead_letter_format.ERROR_TRACEBACK] = traceback
        else:
            texts = origin
        own = [pair for pair in message.header_pairs if not pair[0].startswith(_OWN)]
        return (*own, *((name, text.encode("utf-8", "replace")) for name, text in texts.items()))
