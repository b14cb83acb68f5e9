"""Messages on their way through a door: what is sent, where it was put, what is received.

What a message says about its own delivery travels as the headers that
`state.queues.delivery_headers` reads, so it is an ordinary Kafka record, whichever door it came
through. Values that make no sense are refused here, before anything is written; a Kafka client that
sets the same headers itself is not asked.

The envelope: `message_id`, `trace_id` and `retry_count` are headers too, filled in where they are
absent and the door asks for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from penstock.base.errors import ErrorCode, Refused
from penstock.state.queues.delivery_headers import (
    DEDUP_ID,
    DELAY_MS,
    DELIVER_AT,
    EXPIRES_AT,
    PRIORITY,
)
from penstock.state.queues.policy import PRIORITY_MAX
from penstock.wire.records import Record

MESSAGE_ID, TRACE_ID, RETRY_COUNT = "message_id", "trace_id", "retry_count"
ID_BYTES = 16
HANDED_BYTES_MAX = 16 << 20
"""What one message may unpack to, unless it came as large as that."""
DELAY_MS_MAX = 10 * 366 * 86_400_000
TIME_MS_MAX = 1 << 50
DEDUP_ID_BYTES_MAX = 256
HEADERS_MAX = 100
HEADER_NAME_BYTES_MAX = 256

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to be published."""

    payload: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    """None: the key decides, or the door."""
    timestamp_ms: int | None = None
    delay_ms: int | None = None
    deliver_at_ms: int | None = None
    priority: int | None = None
    dedup_id: str | None = None
    expires_at_ms: int | None = None
    has_envelope: bool = False
    """Whether the envelope's headers are filled in."""
    trace_id: str | None = None
    """For the envelope, where the headers have none; None: a new one."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a message was put."""

    partition: int
    offset: int
    timestamp_ms: int
    message_id: str | None
    """Of its envelope, if it has one."""


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message that is leased to whoever received it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    payload: bytes | None
    headers: Headers
    timestamp_ms: int
    delivery_count: int
    receipt: str
    lock_until_ms: int


def record_of(message: OutgoingMessage, now_ms: int, fresh_id: bytes) -> Record:
    """The record that a message becomes; refuses values that make no sense.

    `fresh_id`: two times `ID_BYTES` of chance, for the envelope.
    """
    headers = message.headers
    if headers:
        _check_headers(headers)
    extra = _delivery_headers(message)
    if message.has_envelope:
        extra += _envelope(message, fresh_id)
    timestamp_ms = message.timestamp_ms
    if timestamp_ms is None:
        timestamp_ms = now_ms
    else:
        _require_between("timestamp_ms", timestamp_ms, 0, TIME_MS_MAX)
    return Record(0, timestamp_ms, message.key, message.payload, headers + tuple(extra))


def size_of(message: OutgoingMessage) -> int:
    """The bytes that whoever publishes it brings along."""
    size = len(message.key or b"") + len(message.payload or b"")
    for name, value in message.headers:
        size += len(name) + len(value or b"")
    return size


def message_id_of(headers: Headers) -> str | None:
    for name, value in headers:
        if name == MESSAGE_ID and value is not None:
            return value.decode("utf-8", "replace")
    return None


def _delivery_headers(message: OutgoingMessage) -> list[tuple[str, bytes | None]]:
    extra: list[tuple[str, bytes | None]] = []
    if message.delay_ms is not None:
        _require_between("delay_ms", message.delay_ms, 0, DELAY_MS_MAX)
        if message.delay_ms:
            extra.append((DELAY_MS, b"%d" % message.delay_ms))
    if message.deliver_at_ms is not None:
        _require_between("deliver_at_ms", message.deliver_at_ms, 0, TIME_MS_MAX)
        extra.append((DELIVER_AT, b"%d" % message.deliver_at_ms))
    if message.priority is not None:
        _require_between("priority", message.priority, 0, PRIORITY_MAX)
        if message.priority:
            extra.append((PRIORITY, b"%d" % message.priority))
    if message.expires_at_ms is not None:
        _require_between("expires_at_ms", message.expires_at_ms, 0, TIME_MS_MAX)
        extra.append((EXPIRES_AT, b"%d" % message.expires_at_ms))
    if message.dedup_id is not None:
        dedup_id = message.dedup_id.encode()
        _require_between("the length of dedup_id", len(dedup_id), 1, DEDUP_ID_BYTES_MAX)
        extra.append((DEDUP_ID, dedup_id))
    return extra


def _envelope(message: OutgoingMessage, fresh_id: bytes) -> list[tuple[str, bytes | None]]:
    names = {name for name, _ in message.headers}
    extra: list[tuple[str, bytes | None]] = []
    if MESSAGE_ID not in names:
        extra.append((MESSAGE_ID, _as_uuid(fresh_id[:ID_BYTES]).encode()))
    if TRACE_ID not in names:
        trace_id = message.trace_id or fresh_id[ID_BYTES:].hex()
        extra.append((TRACE_ID, trace_id.encode()))
    if RETRY_COUNT not in names:
        extra.append((RETRY_COUNT, b"0"))
    return extra


def _as_uuid(chance: bytes) -> str:
    """A random UUID (version 4) of sixteen bytes of chance."""
    number = int.from_bytes(chance, "big")
    number = number & ~(0xF << 76) | 4 << 76
    number = number & ~(0x3 << 62) | 2 << 62
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _check_headers(headers: Sequence[tuple[str, bytes | None]]) -> None:
    _require_between("the number of headers", len(headers), 0, HEADERS_MAX)
    for name, _ in headers:
        if not 1 <= len(name.encode()) <= HEADER_NAME_BYTES_MAX:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"a header's name has 1 to {HEADER_NAME_BYTES_MAX} bytes, not {name[:40]!r}",
            )


def _require_between(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{what} is {value}; it goes from {low} to {high}")
