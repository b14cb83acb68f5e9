"""Responses of etcd's JSON gateway as typed records.

Owns their field names and types. The gateway writes 64-bit numbers as text, bytes as base64, and
omits zero and empty values; unknown fields are ignored, because newer versions add some. Requests
are plain dictionaries: msgspec encodes bytes as base64.
"""

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

# gRPC codes that this client distinguishes.
CODE_UNKNOWN = 2
CODE_INVALID_ARGUMENT = 3
CODE_NOT_FOUND = 5
CODE_ALREADY_EXISTS = 6
CODE_PERMISSION_DENIED = 7
CODE_RESOURCE_EXHAUSTED = 8
CODE_FAILED_PRECONDITION = 9
CODE_OUT_OF_RANGE = 11
CODE_UNIMPLEMENTED = 12
CODE_UNAUTHENTICATED = 16

NOT_DONE = frozenset(
    {
        CODE_INVALID_ARGUMENT,
        CODE_NOT_FOUND,
        CODE_ALREADY_EXISTS,
        CODE_PERMISSION_DENIED,
        CODE_RESOURCE_EXHAUSTED,
        CODE_FAILED_PRECONDITION,
        CODE_OUT_OF_RANGE,
        CODE_UNIMPLEMENTED,
        CODE_UNAUTHENTICATED,
    }
)
"""Codes with which etcd certainly did not apply the request. With any other code the result is
unknown: a request that timed out waiting for the other members may still be applied."""


class Header(msgspec.Struct, frozen=True):
    revision: int = 0
    cluster_id: int = 0
    member_id: int = 0


class KeyValue(msgspec.Struct, frozen=True):
    key: bytes
    value: bytes = b""
    mod_revision: int = 0
    lease: int = 0


class RangeResponse(msgspec.Struct, frozen=True):
    header: Header
    kvs: list[KeyValue] = []
    more: bool = False


class TxnAnswer(msgspec.Struct, frozen=True):
    header: Header
    succeeded: bool = False


class LeaseAnswer(msgspec.Struct, frozen=True):
    """Response to a grant and, in `KeepAlive`, to a renewal; a TTL of 0: the lease has expired."""

    lease: int = msgspec.field(name="ID", default=0)
    ttl_s: int = msgspec.field(name="TTL", default=0)
    header: Header = Header()


class RevokeAnswer(msgspec.Struct, frozen=True):
    header: Header = Header()


class EtcdFailure(msgspec.Struct, frozen=True):
    code: int = CODE_UNKNOWN
    message: str = ""


class KeepAlive(msgspec.Struct, frozen=True):
    """Line of the renewal stream."""

    result: LeaseAnswer | None = None
    error: EtcdFailure | None = None


class Event(msgspec.Struct, frozen=True):
    kv: KeyValue
    type: str = "PUT"


class WatchAnswer(msgspec.Struct, frozen=True):
    header: Header
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    events: list[Event] = []


class WatchLine(msgspec.Struct, frozen=True):
    """Line of the watch stream."""

    result: WatchAnswer | None = None
    error: EtcdFailure | None = None


class TokenAnswer(msgspec.Struct, frozen=True):
    token: str = ""


class VersionAnswer(msgspec.Struct, frozen=True):
    etcdserver: str = ""


_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}
_encoder = msgspec.json.Encoder()


def encode(request: dict[str, Any]) -> bytes:
    return _encoder.encode(request)


def decode(kind: type[T], body: bytes) -> T:
    """Decodes a response. Raises msgspec.DecodeError for a body of another kind."""
    decoder = _decoders.get(kind)
    if decoder is None:
        # Not strict, because the gateway sends numbers as text.
        decoder = _decoders[kind] = msgspec.json.Decoder(kind, strict=False)
    answer: T = decoder.decode(body)
    return answer


def read_failure(body: bytes) -> EtcdFailure:
    """Decodes a refusal; quotes a body that is not JSON (such as a proxy's page)."""
    try:
        return decode(EtcdFailure, body)
    except msgspec.DecodeError:
        return EtcdFailure(message=body[:200].decode(errors="replace").strip())
