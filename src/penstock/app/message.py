"""Messages as applications receive them: from a queue, with a verdict to give, or from a log.

A `Message` is leased: nobody else gets it until the lease runs out, and the lease is renewed while
the message has no verdict. Exactly one verdict counts: `ack`, `nack` or `reject`. Giving it returns
when the broker has kept it, and raises `Refused` if the message is no longer this consumer's.
"""

import asyncio
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.app.durations import Duration, ms_of
from penstock.base.errors import Refused
from penstock.client.consumer.fetched import FetchedRecord as Fetched
from penstock.client.metadata import TopicPartition
from penstock.client.share.acknowledgements import NO_OPTIONS, AcknowledgementType, AckOptions
from penstock.client.share.leases import HeldLease

if TYPE_CHECKING:
    from penstock.app.tracing import MessageTrace
    from penstock.client.share.consumer import ShareConsumer

DELAY_MS_MAX = 365 * 86_400_000
_WORDS = {
    AcknowledgementType.ACCEPT: "ack",
    AcknowledgementType.RELEASE: "nack",
    AcknowledgementType.REJECT: "reject",
    AcknowledgementType.RENEW: "extend",
}


class Received:
    """What every message has."""

    __slots__ = ("_fetched", "_trace")

    def __init__(self, fetched: Fetched, trace: "MessageTrace | None" = None) -> None:
        self._fetched = fetched
        self._trace = trace

    @property
    def fetched(self) -> Fetched:
        """The record underneath."""
        return self._fetched

    @property
    def topic(self) -> str:
        return self._fetched.topic

    @property
    def partition(self) -> int:
        return self._fetched.partition

    @property
    def offset(self) -> int:
        return self._fetched.offset

    @property
    def key(self) -> bytes | None:
        return self._fetched.key

    @property
    def payload(self) -> bytes:
        """The bytes that were published; empty for a record without a value."""
        return self._fetched.value or b""

    @property
    def value(self) -> bytes | None:
        """As `payload`, with None for a record without a value."""
        return self._fetched.value

    @property
    def is_tombstone(self) -> bool:
        """Published with None: in a compacted topic, the end of its key."""
        return self._fetched.value is None

    @property
    def text(self) -> str:
        return self.payload.decode()

    def json(self) -> Any:
        """The payload, read as JSON. Raises ValueError if it is none."""
        return msgspec.json.decode(self.payload)

    @property
    def headers(self) -> dict[str, bytes | None]:
        """By name; of several with one name the last. All are in `header_pairs`."""
        return dict(self._fetched.headers)

    @property
    def header_pairs(self) -> tuple[tuple[str, bytes | None], ...]:
        return self._fetched.headers

    def header(self, name: str, default: str = "") -> str:
        """A header as text."""
        value = self.headers.get(name)
        return default if value is None else value.decode("utf-8", "replace")

    @property
    def timestamp_ms(self) -> int:
        return self._fetched.timestamp

    @property
    def published_at(self) -> datetime:
        return datetime.fromtimestamp(self._fetched.timestamp / 1000, UTC)

    @property
    def where(self) -> TopicPartition:
        return TopicPartition(self._fetched.topic, self._fetched.partition)

    @property
    def is_traced(self) -> bool:
        return self._trace is not None

    def span(self) -> AbstractContextManager[None]:
        """Where tracing is on, a span of handling this message: `with message.span(): ...`.

        Spans begun inside, and messages published there, belong to the message's trace.
        """
        return nullcontext() if self._trace is None else self._trace.handling()

    def __repr__(self) -> str:
        shown = self.payload[:40]
        return f"{type(self).__name__}({self.where}@{self.offset}, key={self.key!r}, {shown!r})"


class LogMessage(Received):
    """A record of a log, as `Client.consume` reads it."""

    __slots__ = ()


class Message(Received):
    """A message of a queue, leased to this consumer."""

    __slots__ = ("_consumer", "_lease")

    def __init__(
        self, consumer: "ShareConsumer", lease: HeldLease, trace: "MessageTrace | None" = None
    ) -> None:
        super().__init__(lease.message, trace)
        self._consumer = consumer
        self._lease = lease

    @property
    def attempt(self) -> int:
        """Which delivery of this message it is, counted from 1."""
        return self._lease.delivery_count

    @property
    def is_settled(self) -> bool:
        return self._lease.is_settled

    @property
    def is_lost(self) -> bool:
        """The broker said that the lease is over: somebody else may have the message now."""
        return self._lease.is_lost

    async def ack(self) -> None:
        """It is done and will not be delivered again.

        >>> async for message in client.queue("jobs", group="workers"):
        ...     await work(message.json())
        ...     await message.ack()
        """
        await self._settle(AcknowledgementType.ACCEPT)

    async def nack(
        self, delay: Duration | None = None, *, error: BaseException | str | None = None
    ) -> None:
        """It failed for now: deliver it again after `delay`, else after the queue's backoff.

        Each delivery counts; after the group's `share.delivery.count.limit` it becomes a dead
        letter, with `error` as its reason. Kafka's brokers take neither the delay nor the error.
        """
        await self._settle(AcknowledgementType.RELEASE, _release_note(delay, error))

    async def reject(self, error: BaseException | str | None = None) -> None:
        """It can never succeed: to the dead letters with it, and why.

        >>> try:
        ...     order = message.json()
        ... except ValueError as error:
        ...     await message.reject(error)
        """
        await self._settle(AcknowledgementType.REJECT, AckOptions(-1, *_error_texts(error)))

    async def extend(self, duration: Duration | None = None) -> None:
        """Holds it for longer, from now on: for `duration`, else for the group's lease.

        Not needed while the message is young: leases are renewed by themselves.
        """
        note = NO_OPTIONS if duration is None else AckOptions(lock_ms=ms_of(duration))
        await self._settle(AcknowledgementType.RENEW, note)

    def _settle(
        self, verdict: AcknowledgementType, note: AckOptions = NO_OPTIONS
    ) -> "asyncio.Future[None]":
        return self._traced(verdict, self._consumer.settle(self._lease, verdict, note))

    def _traced(
        self, verdict: AcknowledgementType, answer: "asyncio.Future[None]"
    ) -> "asyncio.Future[None]":
        if self._trace is not None:
            self._trace.settling(_WORDS[verdict], answer)
        return answer

    # The same without waiting: for those who handle many at a time.

    def accept(self) -> "asyncio.Future[None] | Refused":
        """As `ack`, answered later; or at once, if it cannot be said any more."""
        return self._say(AcknowledgementType.ACCEPT)

    def release(
        self, delay: Duration | None, error: BaseException
    ) -> "asyncio.Future[None] | Refused":
        return self._say(AcknowledgementType.RELEASE, _release_note(delay, error))

    def refuse(self, error: BaseException) -> "asyncio.Future[None] | Refused":
        return self._say(AcknowledgementType.REJECT, AckOptions(-1, *_error_texts(error)))

    def give_back(self) -> "asyncio.Future[None] | Refused":
        """For somebody else, at once."""
        return self._say(AcknowledgementType.RELEASE, AckOptions(delay_ms=0))

    def _say(
        self, verdict: AcknowledgementType, note: AckOptions = NO_OPTIONS
    ) -> "asyncio.Future[None] | Refused":
        try:
            answer = self._consumer.settle(self._lease, verdict, note, is_awaited=False)
            return self._traced(verdict, answer)
        except Refused as refused:
            return refused


def _release_note(delay: Duration | None, error: BaseException | str | None) -> AckOptions:
    delay_ms = -1 if delay is None else ms_of(delay)
    if delay_ms > DELAY_MS_MAX:
        raise ValueError(f"a delay of {delay}: a year is the most")
    return AckOptions(delay_ms, *_error_texts(error), is_patient=delay is None)


def _error_texts(error: BaseException | str | None) -> tuple[str | None, str | None]:
    """The class and the message of what went wrong."""
    if error is None:
        return None, None
    if isinstance(error, str):
        return "Error", error
    return type(error).__qualname__, str(error)
