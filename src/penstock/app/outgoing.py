"""Message to publish, and its encoding as a Kafka record.

A payload is bytes, text (sent as UTF-8), or any value that JSON can express. Delivery options
(delay, priority, ...) travel as headers, so the message is an ordinary Kafka record. Invalid values
are rejected here, before anything is sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from penstock.app.durations import Duration, Moment, moment_ms, ms_of
from penstock.state.queues.delivery_headers import DEDUP_ID, DELAY_MS, DELIVER_AT, PRIORITY, TTL_MS
from penstock.state.queues.policy import PRIORITY_MAX

Payload: TypeAlias = Any
"""bytes, str, None, or any value that JSON can express, such as a Pydantic model or a dataclass."""
Key: TypeAlias = bytes | str | None
HeaderValue: TypeAlias = bytes | str | int | None
Headers: TypeAlias = Mapping[str, HeaderValue] | Sequence[tuple[str, HeaderValue]] | None
RecordHeaders: TypeAlias = tuple[tuple[str, bytes | None], ...]

DEDUP_ID_BYTES_MAX = 256
DELAY_MS_MAX = 10 * 366 * 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One message of `publish_many`; the fields are the arguments of `publish`."""

    payload: Payload = None
    key: Key = None
    headers: Headers = None
    delay: Duration | None = None
    deliver_at: Moment | None = None
    priority: int | None = None
    dedup_id: str | None = None
    expires_in: Duration | None = None
    partition: int | None = None
    timestamp_ms: int | None = None

    def record_headers(self) -> RecordHeaders:
        """The caller's headers, then those of the delivery options. Raises ValueError."""
        return encode_headers(self.headers) + self._delivery_headers()

    def _delivery_headers(self) -> RecordHeaders:
        pairs: list[tuple[str, bytes | None]] = []
        if self.delay is not None:
            delay_ms = ms_of(self.delay)
            if delay_ms > DELAY_MS_MAX:
                raise ValueError(f"delay={self.delay}: the maximum is 3660 days")
            pairs.append((DELAY_MS, b"%d" % delay_ms))
        if self.deliver_at is not None:
            pairs.append((DELIVER_AT, b"%d" % moment_ms(self.deliver_at)))
        if self.priority is not None:
            if not 0 <= self.priority <= PRIORITY_MAX:
                raise ValueError(f"priority {self.priority}: choose 0 to {PRIORITY_MAX}")
            pairs.append((PRIORITY, b"%d" % self.priority))
        if self.expires_in is not None:
            pairs.append((TTL_MS, b"%d" % ms_of(self.expires_in)))
        if self.dedup_id is not None:
            dedup_id = self.dedup_id.encode()
            if not 0 < len(dedup_id) <= DEDUP_ID_BYTES_MAX:
                raise ValueError(
                    f"dedup_id of {len(dedup_id)} bytes: use 1 to {DEDUP_ID_BYTES_MAX} bytes"
                )
            pairs.append((DEDUP_ID, dedup_id))
        return tuple(pairs)


def encode_payload(payload: Payload) -> bytes | None:
    """Encodes a payload. Raises TypeError for a value that JSON cannot express."""
    if payload is None or isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    if (dump := getattr(payload, "model_dump_json", None)) is not None:
        text: str = dump()  # A Pydantic model.
        return text.encode()
    try:
        return msgspec.json.encode(payload)
    except (TypeError, NotImplementedError) as error:
        raise TypeError(
            f"payload of type {type(payload).__name__} is neither bytes, text nor JSON: {error}"
        ) from None


def encode_key(key: Key) -> bytes | None:
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode()
    raise TypeError(f"key of type {type(key).__name__}: pass bytes or text")


def encode_headers(headers: Headers) -> RecordHeaders:
    if not headers:
        return ()
    if isinstance(headers, (str, bytes)):
        raise TypeError(f"headers {headers!r}: pass a mapping, or pairs of name and value")
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    found = []
    for name, value in pairs:
        if not isinstance(name, str):
            raise TypeError(f"header name {name!r}: pass text")
        if isinstance(value, str):
            value = value.encode()
        elif isinstance(value, int):
            value = b"%d" % value
        elif value is not None and not isinstance(value, bytes):
            raise TypeError(
                f"header {name!r} of type {type(value).__name__}: pass bytes, text or int"
            )
        found.append((name, value))
    return tuple(found)
