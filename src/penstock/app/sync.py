"""`penstock.SyncClient`: the blocking counterpart of `penstock.Client`.

Every call blocks until it is done. The asyncio client behind it runs on its own thread, so
heartbeats and lease renewals continue while the caller works. Any number of threads may share one
client.

    with SyncClient("localhost:9092") as client:
        client.publish("jobs", {"id": 1}, key="alice")
        for message in client.queue("jobs", group="workers"):
            work(message.json())
            message.ack()
"""

from collections.abc import Coroutine, Iterable, Iterator, Mapping
from typing import Any, TypeVar, Unpack, overload

from penstock.app.client import Client, Topics
from penstock.app.durations import Duration, Moment
from penstock.app.log_reader import LogReader
from penstock.app.message import LogMessage, Message, Received
from penstock.app.options import (
    ClientOptions,
    LogOptions,
    PollOptions,
    PublishOptions,
    QueueOptions,
    TopicOptions,
)
from penstock.app.outgoing import Outgoing, Payload
from penstock.app.publish import Published
from penstock.app.queue_reader import QueueReader
from penstock.runtime.loop_thread import LoopThread

T = TypeVar("T")


class SyncMessage(Received):
    """A message of a queue; see `penstock.Message`."""

    __slots__ = ("_message", "_thread")

    def __init__(self, thread: LoopThread, message: Message) -> None:
        super().__init__(message.fetched)
        self._thread = thread
        self._message = message

    @property
    def attempt(self) -> int:
        """Number of this delivery, counted from 1."""
        return self._message.attempt

    @property
    def is_settled(self) -> bool:
        return self._message.is_settled

    @property
    def is_lost(self) -> bool:
        return self._message.is_lost

    def ack(self) -> None:
        """Acknowledges the message: it will not be delivered again."""
        self._thread.run(self._message.ack())

    def nack(
        self, delay: Duration | None = None, *, error: BaseException | str | None = None
    ) -> None:
        """Releases the message for redelivery after `delay`, or after the queue's backoff."""
        self._thread.run(self._message.nack(delay, error=error))

    def reject(self, error: BaseException | str | None = None) -> None:
        """Moves the message to the dead-letter queue, with `error` as the reason."""
        self._thread.run(self._message.reject(error))

    def extend(self, duration: Duration | None = None) -> None:
        """Extends the lease; the client renews leases for the queue's `renew_for`."""
        self._thread.run(self._message.extend(duration))

    def save(self, state: Payload) -> None:
        """Saves the state of a long job, and renews the lease; the last state counts."""
        self._thread.run(self._message.save(state))

    @overload
    def saved(self) -> Any: ...

    @overload
    def saved(self, type: type[T]) -> T | None: ...

    def saved(self, type: Any = None) -> Any:
        """Returns the state that an earlier delivery saved; None without any."""
        return self._thread.run(self._message.saved(type))


class SyncQueue(Iterator[SyncMessage]):
    """A queue to iterate over; also a context manager, which closes it."""

    def __init__(self, thread: LoopThread, reader: QueueReader) -> None:
        self._thread = thread
        self._reader = reader

    def __enter__(self) -> "SyncQueue":
        self._thread.run(self._reader.start())
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __next__(self) -> SyncMessage:
        message: Message | None = self._thread.run(_next_or_none(self._reader))
        if message is None:
            raise StopIteration
        return SyncMessage(self._thread, message)

    def receive(self, max: int = 1, wait: Duration = 0.0) -> list[SyncMessage]:
        """Returns up to `max` messages as soon as one is there; none after `wait`."""
        found = self._thread.run(self._reader.receive(max, wait))
        return [SyncMessage(self._thread, message) for message in found]

    def close(self) -> None:
        """Releases unsettled messages, and leaves the group."""
        self._thread.run(self._reader.close())


class SyncLog(Iterator[LogMessage]):
    """A log to iterate over; also a context manager, which commits offsets and closes it."""

    def __init__(self, thread: LoopThread, reader: LogReader) -> None:
        self._thread = thread
        self._reader = reader

    def __enter__(self) -> "SyncLog":
        self._thread.run(self._reader.start())
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.close(is_handled=kind is None)

    def __next__(self) -> LogMessage:
        message: LogMessage | None = self._thread.run(_next_or_none(self._reader))
        if message is None:
            raise StopIteration
        return message

    def commit(self) -> None:
        """Commits the offsets of all handled messages now."""
        self._thread.run(self._reader.commit())

    def seek(
        self,
        topic: str,
        partition: int,
        offset: int | None = None,
        *,
        timestamp: Moment | None = None,
    ) -> int:
        """Seeks to an offset, or to the first record at or after a time. Returns the offset."""
        return self._thread.run(self._reader.seek(topic, partition, offset, timestamp=timestamp))

    def publish(
        self, topic: str, payload: Payload = None, **options: Unpack[PublishOptions]
    ) -> None:
        """Publishes; with "exactly-once", as part of the transaction of the current message."""
        self._thread.run(self._reader.publish(topic, payload, **options))

    def close(self, *, is_handled: bool = True) -> None:
        self._thread.run(self._reader.close(is_handled=is_handled))


class SyncClient:
    """Takes what `penstock.Client` takes; use it as `with SyncClient("host:9092") as client`."""

    def __init__(self, brokers: str | None = None, **options: Unpack[ClientOptions]) -> None:
        self._client = Client(brokers, **options)
        self._thread: LoopThread | None = None

    def __enter__(self) -> "SyncClient":
        self.connect()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.close(drain=kind is None)

    def connect(self) -> None:
        """Connects to a broker. Raises `Unreachable`, with a remedy, if no address answers."""
        if self._thread is not None:
            return
        thread = LoopThread()
        try:
            thread.run(self._client.connect())
        except BaseException:
            thread.close()
            raise
        self._thread = thread

    def close(self, *, drain: bool = True) -> None:
        """Sends buffered messages (unless `drain` is False), and closes every reader."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.run(self._client.close(drain=drain))
            finally:
                thread.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._thread is None:
            work.close()
            raise RuntimeError("not connected: use `with SyncClient(...) as client`")
        return self._thread.run(work)

    # Publishing.

    def publish(
        self, topic: str, payload: Payload = None, **options: Unpack[PublishOptions]
    ) -> Published:
        """Publishes one message and waits until it is on disk; see `Client.publish`.

        >>> client.publish("mail", {"to": "ann"}, key="ann", delay="15m", priority=5)
        """
        return self._run(self._client.publish(topic, payload, **options))

    def publish_many(self, topic: str, messages: Iterable[Outgoing | Payload]) -> list[Published]:
        """Publishes many messages in as few requests as possible, and waits for all of them."""
        return self._run(self._client.publish_many(topic, list(messages)))

    def flush(self) -> None:
        self._run(self._client.flush())

    @property
    def dropped(self) -> int:
        """Messages that were dropped because the buffer was full (`on_full="drop"`)."""
        return self._client.dropped

    # Topics and groups.

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        rf: int = -1,
        retention_ms: int | None = None,
        **options: Unpack[TopicOptions],
    ) -> None:
        """Creates a topic; see `Client.create_topic`."""
        self._run(self._client.create_topic(name, partitions, rf, retention_ms, **options))

    def delete_topic(self, name: str) -> None:
        self._run(self._client.delete_topic(name))

    def configure_topic(self, name: str, configs: Mapping[str, str]) -> None:
        self._run(self._client.configure_topic(name, configs))

    def configure_group(self, group: str, configs: Mapping[str, str]) -> None:
        self._run(self._client.configure_group(group, configs))

    # Reading.

    def queue(self, topic: Topics, group: str, **options: Unpack[QueueOptions]) -> SyncQueue:
        """A queue to iterate over; see `Client.queue`."""

        async def make() -> QueueReader:
            return self._client.queue(topic, group, **options)

        reader = self._run(make())
        assert self._thread is not None
        return SyncQueue(self._thread, reader)

    def poll(
        self,
        topic: str,
        group: str,
        max: int = 1,
        wait: Duration = 0.0,
        **options: Unpack[PollOptions],
    ) -> list[SyncMessage]:
        """Returns up to `max` messages of a queue; waits up to `wait` for the first one."""
        found = self._run(self._client.poll(topic, group, max, wait, **options))
        assert self._thread is not None
        return [SyncMessage(self._thread, message) for message in found]

    def queue_depth(self, topic: str, group: str) -> int:
        """Returns the number of unsettled messages of a queue; see `Client.queue_depth`."""
        return self._run(self._client.queue_depth(topic, group))

    def consume(
        self, topic: Topics, group: str | None = None, **options: Unpack[LogOptions]
    ) -> SyncLog:
        """A log to iterate over; see `Client.consume`."""

        async def make() -> LogReader:
            return self._client.consume(topic, group, **options)

        reader = self._run(make())
        assert self._thread is not None
        return SyncLog(self._thread, reader)

    def seek(
        self,
        topic: str,
        partition: int,
        offset: int | None = None,
        *,
        timestamp: Moment | None = None,
        group: str | None = None,
    ) -> int:
        """Moves the open log readers of a topic, or a group without members; see `Client.seek`."""
        return self._run(
            self._client.seek(topic, partition, offset, timestamp=timestamp, group=group)
        )


async def _next_or_none(reader: "QueueReader | LogReader") -> Any:
    """The next message, or None at the end: StopAsyncIteration cannot cross threads."""
    try:
        return await reader.__anext__()
    except StopAsyncIteration:
        return None
