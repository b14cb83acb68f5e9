"""Clients of the aiokafka family that write and read all the time and note what they see.

As in `rdkafka`, but all of them share one thread with one event loop. A client that cannot go on
says so in its `errors`.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    TopicPartition,
)
from aiokafka.errors import KafkaError, KafkaTimeoutError

from tests.chaos.history import (
    Acknowledged,
    Assigned,
    Committed,
    Event,
    Polled,
    Record,
    Refused,
    Sent,
)

TICK_S = 0.01
COMMIT_S = 0.2
FINISH_S = 120.0
IN_FLIGHT_MAX = 5_000
REQUEST_TIMEOUT_MS = 12_000
"""A request to a node that hangs is given up after that long; the default is 40 s. It is also how
long a record may wait for a leader, so it must be more than a session lasts."""


@contextlib.contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own."""
    # Lost connections are what these tests are about; aiokafka reports each of them.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="aiokafka", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class _Client:
    """A task on that loop, which runs until it is asked to stop."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self.errors: list[str] = []
        self._stopping = asyncio.Event()
        self._loop = loop

    def _run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._done = asyncio.run_coroutine_threadsafe(self._guard(work), self._loop)

    async def _guard(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except KafkaError as error:
            self.errors.append(repr(error))

    def finish(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._done.result(FINISH_S)


class AioWriter(_Client):
    """Writes `rate` records a second, to every partition in turn."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        name: str,
        partitions: int,
        rate: int,
        history: list[Event],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(name, loop)
        self.acks: list[tuple[float, int]] = []
        self._bootstrap, self._topic, self._rate = bootstrap.split(","), topic, rate
        self._numbers = [0] * partitions
        self._history = history
        self._in_flight: dict[asyncio.Future[Any], None] = {}
        self._run(self._write)

    @property
    def acknowledged(self) -> int:
        return len(self.acks)

    async def _write(self) -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            enable_idempotence=True,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            retry_backoff_ms=20,
            linger_ms=2,
        ) as producer:
            began_s, sent = self._loop.time(), 0
            while not self._stopping.is_set():
                due = int((self._loop.time() - began_s) * self._rate)
                while sent < due and len(self._in_flight) < IN_FLIGHT_MAX:
                    await self._send(producer, sent % len(self._numbers))
                    sent += 1
                sent = due
                await asyncio.sleep(TICK_S)
            if self._in_flight:
                await asyncio.wait(list(self._in_flight))

    async def _send(self, producer: AIOKafkaProducer, partition: int) -> None:
        record = Record(self.name, self._numbers[partition])
        self._numbers[partition] += 1
        self._history.append(Sent(partition, record))
        try:
            future = await producer.send(self._topic, record.encode(), partition=partition)
        except KafkaTimeoutError:
            # The producer's buffer was full for as long as a request may take: the record was never
            # sent.
            self._history.append(Refused(partition, record))
            return
        self._in_flight[future] = None
        future.add_done_callback(lambda done: self._delivered(partition, record, done))

    def _delivered(self, partition: int, record: Record, done: "asyncio.Future[Any]") -> None:
        del self._in_flight[done]
        if done.cancelled():
            self.errors.append("cancelled")
        elif (error := done.exception()) is not None:
            self.errors.append(repr(error))
        else:
            self._history.append(Acknowledged(partition, record, done.result().offset))
            self.acks.append((time.monotonic(), partition))


class AioReader(_Client, ConsumerRebalanceListener):  # type: ignore[misc]
    """A member of a group: reads, and commits now and then."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        name: str,
        group: str,
        history: list[Event],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(name, loop)
        self.group = group
        self._bootstrap, self._topic = bootstrap.split(","), topic
        self._history = history
        self._ends: dict[TopicPartition, int] = {}
        self._run(self._read)

    async def _read(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=self.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            retry_backoff_ms=20,
            fetch_max_wait_ms=100,
        )
        self._consumer = consumer
        consumer.subscribe([self._topic], listener=self)
        async with consumer:
            commit_s = self._loop.time()
            while not self._stopping.is_set():
                self._take(await consumer.getmany(timeout_ms=100))
                if self._loop.time() - commit_s >= COMMIT_S:
                    await self._commit()
                    commit_s = self._loop.time()

    def _take(self, found: dict[TopicPartition, list[Any]]) -> None:
        for row, messages in found.items():
            for message in messages:
                record = Record.decode(message.value)
                self._history.append(Polled(self.name, row.partition, message.offset, record))
                self._ends[row] = message.offset + 1

    async def _commit(self) -> None:
        ends, self._ends = self._ends, {}
        if not ends:
            return
        try:
            await self._consumer.commit(ends)
        except KafkaError:
            return  # Nothing is promised; what was read may be read again.
        for row, end in ends.items():
            self._history.append(Committed(self.group, row.partition, end))

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._ends.clear()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        partitions = tuple(sorted(row.partition for row in assigned))
        self._history.append(Assigned(self.group, self.name, partitions))
