"""What etcd's JSON gateway says, as typed records.

Owns: the names and shapes of its answers. The gateway writes 64-bit numbers as text, bytes as
base64, and leaves out what is zero or empty; unknown fields are ignored, for newer versions add
some. Requests are plain dictionaries: msgspec writes bytes as base64 by itself.
"""

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

# The gRPC codes this client tells apart.
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
"""Codes with which etcd certainly did not do what it was asked. Any other leaves it open: a
request that timed out waiting for the other members may be done by them later."""


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
    """Of a grant and, in `KeepAlive`, of a renewal: a time to live of 0 says it is gone."""

    lease: int = msgspec.field(name="ID", default=0)
    ttl_s: int = msgspec.field(name="TTL", default=0)
    header: Header = Header()


class RevokeAnswer(msgspec.Struct, frozen=True):
    header: Header = Header()


class EtcdFailure(msgspec.Struct, frozen=True):
    code: int = CODE_UNKNOWN
    message: str = ""


class KeepAlive(msgspec.Struct, frozen=True):
    """A line of the renewal stream."""

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
    """A line of the watch stream."""

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
    """Raises msgspec.DecodeError for what is not such an answer."""
    decoder = _decoders.get(kind)
    if decoder is None:
        # Not strict: numbers come as text.
        decoder = _decoders[kind] = msgspec.json.Decoder(kind, strict=False)
    answer: T = decoder.decode(body)
    return answer


def read_failure(body: bytes) -> EtcdFailure:
    """The refusal in a body; what is no JSON (a proxy's page) is quoted as it is."""
    try:
        return decode(EtcdFailure, body)
    except msgspec.DecodeError:
        return EtcdFailure(message=body[:200].decode(errors="replace").strip())
