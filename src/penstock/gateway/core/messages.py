"""Messages of the gateway protocols: outgoing, placed, received.

Delivery options of a message travel as the headers that `state.queues.delivery_headers` reads, so
it is an ordinary Kafka record whichever protocol it came by. Invalid values are refused here,
before anything is written; headers that a Kafka client sets itself are not checked.

The envelope: `message_id`, `trace_id` and `retry_count` are headers too, added if they are absent
and the protocol asks for them.
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
"""Maximum size of a decompressed message in a response, unless it was published with that size."""
DELAY_MS_MAX = 10 * 366 * 86_400_000
TIME_MS_MAX = 1 << 50
DEDUP_ID_BYTES_MAX = 256
HEADERS_MAX = 100
HEADER_NAME_BYTES_MAX = 256

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """Message to publish."""

    payload: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    """Target partition; None: chosen by the key, or by the publisher if there is none."""
    timestamp_ms: int | None = None
    delay_ms: int | None = None
    deliver_at_ms: int | None = None
    priority: int | None = None
    dedup_id: str | None = None
    expires_at_ms: int | None = None
    has_envelope: bool = False
    """True if the envelope's headers are added."""
    trace_id: str | None = None
    """Trace id for the envelope if the headers have none; None: a new one."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Place of a published message."""

    partition: int
    offset: int
    timestamp_ms: int
    message_id: str | None
    """Id from its envelope, if it has one."""


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """Message leased to a receiver."""

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
    """Returns the record of a message; refuses invalid values.

    `fresh_id`: two times `ID_BYTES` random bytes, for the envelope.
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
    """Size of a message for the publisher's quota, in bytes."""
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
        _require_between("length of dedup_id", len(dedup_id), 1, DEDUP_ID_BYTES_MAX)
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


def _as_uuid(random_bytes: bytes) -> str:
    """Returns the random UUID (version 4) made of 16 random bytes."""
    number = int.from_bytes(random_bytes, "big")
    number = number & ~(0xF << 76) | 4 << 76
    number = number & ~(0x3 << 62) | 2 << 62
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _check_headers(headers: Sequence[tuple[str, bytes | None]]) -> None:
    _require_between("number of headers", len(headers), 0, HEADERS_MAX)
    for name, _ in headers:
        if not 1 <= len(name.encode()) <= HEADER_NAME_BYTES_MAX:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"invalid header name {name[:40]!r}: must have 1 to {HEADER_NAME_BYTES_MAX} bytes",
            )


def _require_between(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise Refused(ErrorCode.INVALID_REQUEST, f"invalid {name} {value}: must be {low} to {high}")
