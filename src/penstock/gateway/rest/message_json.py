"""JSON format of published and received messages.

A payload is any JSON value. A string is stored as its text, `null` as no value at all, everything
else as the JSON given; other bytes come as `payload_base64`. A received payload is an object or
array if its bytes are one, else a string if they are text, else base64. If that would differ from
the published value (a number, or text that looks like an object), the header `content-type` records
the original type. So payloads published here are received here unchanged, and Kafka clients see
plain text or JSON.

Headers are an object: a value is a string, a number, true, false, null, `{"base64": ...}`, or an
array of those for a name that occurs more than once.
"""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.base.errors import ErrorCode, Refused
from penstock.gateway.core.messages import (
    MESSAGE_ID,
    RETRY_COUNT,
    TRACE_ID,
    Headers,
    OutgoingMessage,
    Placed,
    ReceivedMessage,
)

CONTENT_TYPE = "content-type"
JSON, TEXT = b"application/json", b"text/plain"
RETRY_COUNT_MAX = 10**9


class Base64(Struct, forbid_unknown_fields=True):
    """Bytes that are not text, as base64."""

    base64: str


HeaderScalar: TypeAlias = str | int | float | bool | None
HeaderValue: TypeAlias = HeaderScalar | Base64 | list[HeaderScalar]


class MessageBody(Struct, forbid_unknown_fields=True):
    """Message to publish: `payload` or `payload_base64`, and delivery options."""

    payload: Raw | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET
    key: str | None = None
    key_base64: str | None = None
    headers: dict[str, HeaderValue] | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    delay_ms: int | None = None
    deliver_at_ms: int | None = None
    expires_at_ms: int | None = None
    priority: int | None = None
    dedup_id: str | None = None


class PublishBody(MessageBody, forbid_unknown_fields=True):
    """One message, or `messages`."""

    messages: list[MessageBody] | UnsetType = UNSET


class PlacedAnswer(Struct):
    """Place of a published message."""

    partition: int
    offset: int
    timestamp_ms: int
    message_id: str | None


class PublishedEntry(Struct):
    """Place of one of several published messages, or status, code and detail of its error."""

    partition: int | UnsetType = UNSET
    offset: int | UnsetType = UNSET
    timestamp_ms: int | UnsetType = UNSET
    message_id: str | UnsetType | None = UNSET
    status: int | UnsetType = UNSET
    code: str | UnsetType = UNSET
    detail: str | UnsetType = UNSET


class PublishAnswer(Struct):
    """One entry for each message, in order."""

    messages: list[PublishedEntry]


class MessageAnswer(Struct, omit_defaults=True):
    """Received message; in log mode without delivery count and receipt."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: str | None
    payload: Any
    headers: dict[str, Any]
    message_id: str
    trace_id: str | None
    retry_count: int
    delivery_count: int | UnsetType = UNSET
    receipt: str | UnsetType = UNSET
    lock_until_ms: int | UnsetType = UNSET
    key_base64: str | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET


class PollAnswer(Struct):
    """Received messages; may be empty."""

    messages: list[MessageAnswer]


# -- requests ---------------------------------------------------------------------------------


def outgoing_of(body: MessageBody, trace_id: str | None) -> OutgoingMessage:
    """Returns the message that a body describes; refuses ambiguous fields."""
    headers = () if body.headers is None else _headers_of(body.headers)
    payload, kind = _payload_of(body)
    if kind is not None and not any(name == CONTENT_TYPE for name, _ in headers):
        headers += ((CONTENT_TYPE, kind),)
    key = None if body.key is None else body.key.encode()
    if body.key_base64 is not None:
        if key is not None:
            raise Refused(ErrorCode.INVALID_REQUEST, "key and key_base64 are both set: send one")
        key = unbase64("key_base64", body.key_base64)
    return OutgoingMessage(
        payload,
        key,
        headers,
        body.partition,
        body.timestamp_ms,
        body.delay_ms,
        body.deliver_at_ms,
        body.priority,
        body.dedup_id,
        body.expires_at_ms,
        has_envelope=True,
        trace_id=trace_id,
    )


def _payload_of(body: MessageBody) -> tuple[bytes | None, bytes | None]:
    """Returns a payload's bytes, and its content type if the bytes do not show it."""
    given, coded = body.payload, body.payload_base64
    if isinstance(coded, str):
        if given is not UNSET:
            raise Refused(
                ErrorCode.INVALID_REQUEST, "payload and payload_base64 are both set: send one"
            )
        return unbase64("payload_base64", coded), None
    if isinstance(given, UnsetType):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "missing payload: send payload (any JSON value) or payload_base64",
        )
    raw = bytes(given)
    match raw[:1]:
        case b'"':
            text = msgspec.json.decode(raw, type=str).encode()
            return text, TEXT if _is_container(text) else None
        case b"{" | b"[":
            return raw, None
        case b"n":
            return None, None
    return raw, JSON


def unbase64(name: str, text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{name} is not valid base64: {error}") from None


def _headers_of(given: dict[str, HeaderValue]) -> Headers:
    pairs: list[tuple[str, bytes | None]] = []
    for name, value in given.items():
        if isinstance(value, list):
            pairs += [(name, _scalar_of(one)) for one in value]
        elif isinstance(value, Base64):
            pairs.append((name, unbase64(f"header {name}", value.base64)))
        else:
            pairs.append((name, _scalar_of(value)))
    return tuple(pairs)


def _scalar_of(value: HeaderScalar) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


# -- responses --------------------------------------------------------------------------------


def placed_answer(placed: Placed) -> PlacedAnswer:
    return PlacedAnswer(placed.partition, placed.offset, placed.timestamp_ms, placed.message_id)


def received_answer(message: ReceivedMessage) -> MessageAnswer:
    """Formats a message in queue mode."""
    shown = message_answer(
        message.topic,
        message.partition,
        message.offset,
        message.timestamp_ms,
        message.key,
        message.payload,
        message.headers,
    )
    shown.delivery_count = message.delivery_count
    shown.retry_count = max(shown.retry_count, message.delivery_count - 1)
    shown.receipt = message.receipt
    shown.lock_until_ms = message.lock_until_ms
    return shown


def message_answer(
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    payload: bytes | None,
    headers: Headers,
) -> MessageAnswer:
    """Formats a message with the fields of its envelope, or with defaults if it has none."""
    known = dict(headers)
    shown = MessageAnswer(
        topic,
        partition,
        offset,
        timestamp_ms,
        None,
        None,
        _shown_headers(headers, known),
        _text_of(known.get(MESSAGE_ID)) or f"{topic}-{partition}-{offset}",
        _text_of(known.get(TRACE_ID)),
        _count_of(known.get(RETRY_COUNT)),
    )
    if key is not None:
        shown.key = _text_of(key)
        if shown.key is None:
            shown.key_base64 = b64encode(key).decode()
    if payload is not None:
        shown.payload = _shown_payload(payload, known.get(CONTENT_TYPE))
        if shown.payload is None:
            shown.payload_base64 = b64encode(payload).decode()
    return shown


def _shown_payload(payload: bytes, kind: bytes | None) -> Any:
    """Returns the payload as JSON or text; None if it is neither."""
    is_json = kind == JSON or (kind is None and payload[:1] in (b"{", b"["))
    if is_json and is_valid_json(payload):
        return Raw(payload)
    return _text_of(payload)


def is_valid_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=Raw)
        data.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _is_container(text: bytes) -> bool:
    return text[:1] in (b"{", b"[") and is_valid_json(text)


def _shown_headers(headers: Iterable[tuple[str, bytes | None]], known: dict[str, Any]) -> Any:
    names = list(headers)
    if len(known) == len(names):
        return {name: _shown_header(value) for name, value in names}
    several: dict[str, list[Any]] = {}
    for name, value in names:
        several.setdefault(name, []).append(_shown_header(value))
    return {name: values[0] if len(values) == 1 else values for name, values in several.items()}


def _shown_header(value: bytes | None) -> Any:
    if value is None:
        return None
    text = _text_of(value)
    return {"base64": b64encode(value).decode()} if text is None else text


def _text_of(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _count_of(value: bytes | None) -> int:
    if value is None or not value.isdigit() or len(value) > len(str(RETRY_COUNT_MAX)):
        return 0
    return int(value)
