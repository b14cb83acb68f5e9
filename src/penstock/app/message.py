"""Received messages: `Message` of a queue, to be acknowledged, and `LogMessage` of a log.

A `Message` is leased: no other consumer receives it until the lease expires. The lease is renewed
until the message is settled. Only the first acknowledgement counts: `ack`, `nack` or `reject`. The
call returns when the broker has persisted it, and raises `Refused` if this consumer no longer holds
the lease.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import lru_cache
from traceback import format_exception
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from penstock.app.durations import Duration, ms_of
from penstock.app.outgoing import Payload, encode_payload
from penstock.base.errors import ErrorCode, Refused
from penstock.client.consumer.fetched import FetchedRecord as Fetched
from penstock.client.metadata import TopicPartition
from penstock.client.share.acknowledgements import NO_OPTIONS, AcknowledgementType, AckOptions
from penstock.client.share.leases import HeldLease
from penstock.state.queues.delivery_state import TRACEBACK_MAX

if TYPE_CHECKING:
    from penstock.app.checkpoints import Checkpoints
    from penstock.app.tracing import MessageTrace
    from penstock.client.share.consumer import ShareConsumer

T = TypeVar("T")

DELAY_MS_MAX = 365 * 86_400_000
_FINAL = (AcknowledgementType.ACCEPT, AcknowledgementType.REJECT)
_OMITTED = "\n... (omitted) ...\n"
_SPAN_NAMES = {
    AcknowledgementType.ACCEPT: "ack",
    AcknowledgementType.RELEASE: "nack",
    AcknowledgementType.REJECT: "reject",
    AcknowledgementType.RENEW: "extend",
}


@lru_cache(maxsize=256)
def _decoder(kind: Any) -> Callable[[bytes], Any]:
    # payloads imports this module: handlers are annotated with Message.
    from penstock.app.payloads import decoder_of

    return decoder_of(kind)


def encode_state(state: Payload) -> bytes:
    """Encodes the state of a checkpoint. Raises TypeError for None, which means no state.

    Unlike a payload, text is encoded as JSON, so that it is decoded to the same text.
    """
    body = msgspec.json.encode(state) if isinstance(state, str) else encode_payload(state)
    if body is None:
        raise TypeError("state is None: pass bytes, or a value that JSON can express")
    return body


def decode_state(body: bytes, kind: Any) -> Any:
    """Decodes the state of a checkpoint as `kind`; None: as JSON."""
    if kind is bytes:
        return body
    return msgspec.json.decode(body) if kind is None else _decoder(kind)(body)


class Received:
    """Base of received messages: the record's fields, and its trace."""

    __slots__ = ("_fetched", "_trace")

    def __init__(self, fetched: Fetched, trace: "MessageTrace | None" = None) -> None:
        self._fetched = fetched
        self._trace = trace

    @property
    def fetched(self) -> Fetched:
        """The fetched record that this message wraps."""
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
        """Like `payload`, but None for a record without a value."""
        return self._fetched.value

    @property
    def is_tombstone(self) -> bool:
        """True if published with None: in a compacted topic, this deletes the key."""
        return self._fetched.value is None

    @property
    def text(self) -> str:
        return self.payload.decode()

    @overload
    def json(self) -> Any: ...

    @overload
    def json(self, type: type[T]) -> T: ...

    def json(self, type: Any = None) -> Any:
        """Decodes the payload as JSON, and validates it as `type` if one is given.

        The type is a Pydantic model, a msgspec.Struct, a dataclass or a TypedDict. Raises
        ValueError if the payload is not valid JSON, and `InvalidPayload`, a ValueError, if it is
        not a valid `type`.

        >>> order = message.json(Order)
        """
        if type is None:
            return msgspec.json.decode(self.payload)
        return _decoder(type)(self.payload)

    @property
    def headers(self) -> dict[str, bytes | None]:
        """Headers by name; for a repeated name, the last one. `header_pairs` has all."""
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
        """Span of handling this message, where tracing is on: `with message.span(): ...`.

        Spans started inside it, and messages published there, belong to the message's trace.
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

    __slots__ = ("_checkpoints", "_consumer", "_has_state", "_lease")

    def __init__(
        self,
        consumer: "ShareConsumer",
        lease: HeldLease,
        trace: "MessageTrace | None" = None,
        checkpoints: "Checkpoints | None" = None,
    ) -> None:
        super().__init__(lease.message, trace)
        self._consumer = consumer
        self._lease = lease
        self._checkpoints = checkpoints
        self._has_state = False

    @property
    def attempt(self) -> int:
        """Number of this delivery, counted from 1."""
        return self._lease.delivery_count

    @property
    def is_settled(self) -> bool:
        return self._lease.is_settled

    @property
    def is_lost(self) -> bool:
        """True if the broker ended the lease: another consumer may hold the message now."""
        return self._lease.is_lost

    async def ack(self) -> None:
        """Acknowledges the message: it will not be delivered again.

        >>> async for message in client.queue("jobs", group="workers"):
        ...     await work(message.json())
        ...     await message.ack()
        """
        await self._settle(AcknowledgementType.ACCEPT)

    async def nack(
        self, delay: Duration | None = None, *, error: BaseException | str | None = None
    ) -> None:
        """Releases the message for redelivery after `delay`, or after the queue's backoff.

        Each delivery counts. After the group's `share.delivery.count.limit` the message moves to
        the dead-letter queue, with `error` as the reason. Kafka's brokers ignore delay and error.
        """
        await self._settle(AcknowledgementType.RELEASE, _release_options(delay, error))

    async def reject(self, error: BaseException | str | None = None) -> None:
        """Moves the message to the dead-letter queue, with `error` as the reason.

        >>> try:
        ...     order = message.json()
        ... except ValueError as error:
        ...     await message.reject(error)
        """
        await self._settle(AcknowledgementType.REJECT, _failure_options(error))

    async def extend(self, duration: Duration | None = None) -> None:
        """Extends the lease, from now: by `duration`, or by the group's lease duration.

        Rarely needed: the client renews leases for the reader's `renew_for`.
        """
        options = NO_OPTIONS if duration is None else AckOptions(lock_ms=ms_of(duration))
        await self._settle(AcknowledgementType.RENEW, options)

    async def save(self, state: Payload) -> None:
        """Saves the state of a long job, and renews the lease; the last state counts.

        A later delivery of the message gets it from `saved`. It is deleted when the message is
        acknowledged or rejected. Raises `Refused` if this consumer no longer holds the lease.

        >>> for page in range(await message.saved(int) or 0, pages):
        ...     await convert(page)
        ...     await message.save(page + 1)
        """
        body = encode_state(state)
        await self._settle(AcknowledgementType.RENEW)
        if self._checkpoints is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{self!r} was received without a client")
        await self._checkpoints.save(self, body)
        self._has_state = True

    @overload
    async def saved(self) -> Any: ...

    @overload
    async def saved(self, type: type[T]) -> T | None: ...

    async def saved(self, type: Any = None) -> Any:
        """Returns the state that an earlier delivery saved, decoded like `json`; None without any.

        `bytes` as the type returns the state as it is. Raises `InvalidPayload`, a ValueError, if
        the state is not a valid `type`.
        """
        if self.attempt == 1 or self._checkpoints is None:
            return None
        body = await self._checkpoints.load(self)
        if body is None:
            return None
        self._has_state = True
        return decode_state(body, type)

    def _settle(
        self, kind: AcknowledgementType, options: AckOptions = NO_OPTIONS
    ) -> "asyncio.Future[None]":
        return self._traced(kind, self._consumer.settle(self._lease, kind, options))

    def _traced(
        self, kind: AcknowledgementType, answer: "asyncio.Future[None]"
    ) -> "asyncio.Future[None]":
        if self._trace is not None:
            self._trace.settling(_SPAN_NAMES[kind], answer)
        if self._has_state and kind in _FINAL:
            answer.add_done_callback(self._forget_state)
        return answer

    def _forget_state(self, answer: "asyncio.Future[None]") -> None:
        if not answer.cancelled() and answer.exception() is None:
            assert self._checkpoints is not None
            self._checkpoints.delete(self)

    # The same without waiting, for callers that handle many messages at a time.

    def accept(self) -> "asyncio.Future[None] | Refused":
        """Like `ack`, but returns a future; or the refusal, if the lease is already lost."""
        return self._settle_soon(AcknowledgementType.ACCEPT)

    def release(
        self, delay: Duration | None, error: BaseException
    ) -> "asyncio.Future[None] | Refused":
        return self._settle_soon(AcknowledgementType.RELEASE, _release_options(delay, error))

    def refuse(self, error: BaseException) -> "asyncio.Future[None] | Refused":
        return self._settle_soon(AcknowledgementType.REJECT, _failure_options(error))

    def give_back(self) -> "asyncio.Future[None] | Refused":
        """Releases the message for immediate redelivery to another consumer."""
        return self._settle_soon(AcknowledgementType.RELEASE, AckOptions(delay_ms=0))

    def _settle_soon(
        self, kind: AcknowledgementType, options: AckOptions = NO_OPTIONS
    ) -> "asyncio.Future[None] | Refused":
        try:
            answer = self._consumer.settle(self._lease, kind, options, is_awaited=False)
            return self._traced(kind, answer)
        except Refused as refused:
            return refused


def _release_options(delay: Duration | None, error: BaseException | str | None) -> AckOptions:
    delay_ms = -1 if delay is None else ms_of(delay)
    if delay_ms > DELAY_MS_MAX:
        raise ValueError(f"delay={delay}: the maximum is 365 days")
    return _failure_options(error)._replace(delay_ms=delay_ms, is_patient=delay is None)


def _failure_options(error: BaseException | str | None) -> AckOptions:
    """Class name, message and traceback of an error."""
    if error is None:
        return NO_OPTIONS
    if isinstance(error, str):
        return AckOptions(error_class="Error", error_message=error)
    return AckOptions(
        error_class=type(error).__qualname__,
        error_message=str(error),
        traceback=show_traceback(error),
    )


def show_traceback(error: BaseException, chars_max: int = TRACEBACK_MAX) -> str | None:
    """Formats a traceback from the handler's first frame on; None for an error never raised.

    A longer one loses its middle: the beginning says who called, the end where it failed.
    """
    at = error.__traceback__
    if at is None:
        return None
    frame: TracebackType | None = at
    while frame is not None and _is_internal(frame.tb_frame):
        frame = frame.tb_next
    text = "".join(format_exception(type(error), error, frame or at, chain=True))
    if len(text) <= chars_max:
        return text
    head = chars_max // 4
    return text[:head] + _OMITTED + text[len(text) - (chars_max - head - len(_OMITTED)) :]


def _is_internal(frame: FrameType) -> bool:
    """True for a frame of the code that calls handlers."""
    name = str(frame.f_globals.get("__name__", ""))
    return name.startswith(("penstock.app.", "penstock.runtime.", "concurrent.futures."))
