"""Frames: the length prefix and the headers around a message.

Owns the choice of header version. A request's header is v2 (tagged fields) from the version where
the request is flexible, v1 before. A response's is v1 or v0 likewise, except ApiVersions, whose
response always has v0, because the client does not yet know the broker's versions. The client id is
a legacy string in every header.

Invariant: parts below `PART_BYTES_JOINED` are joined, larger ones are not copied.

The server reads request headers, which needs every API (`request_header`), splits the stream into
frames and limits their size.
"""

import struct
from typing import Any, Final

from penstock.base.errors import PeerError
from penstock.base.ports import Buffer
from penstock.wire.reader_source import skip_tags
from penstock.wire.schema import Wire, wire_of

PART_BYTES_JOINED: Final = 16 * 1024
"""Minimum size of a part that is sent uncopied: copying it would cost more than a `writev`."""

API_VERSIONS_KEY: Final = 18

_LENGTH = struct.Struct(">i")
_LENGTH_AND_ID = struct.Struct(">ii")
_LENGTH_AND_ID_AND_TAGS = struct.Struct(">iix")
_LENGTH_AND_REQUEST_HEADER = struct.Struct(">ihhih")


def read_response_header(
    view: memoryview, position: int, end: int, declared: type[Any], version: int
) -> tuple[int, int]:
    """Reads `(correlation_id, position of the body)` of a response of class `declared`."""
    if end - position < 4:
        raise PeerError(f"response header: {end - position} bytes instead of at least 4")
    (correlation_id,) = _LENGTH.unpack_from(view, position)
    position += 4
    if has_response_tags(declared, version):
        if position >= end:
            raise PeerError("response header: cut short before its tagged fields")
        tags = view[position]
        position += 1
        if tags:
            position = skip_header_tags(view, position, end, tags)
    return correlation_id, position


def response_frame(
    correlation_id: int, declared: type[Any], version: int, parts: list[Buffer]
) -> list[Buffer]:
    """Buffers to send for a response with the encoded body `parts`."""
    return tagged_frame(correlation_id, parts, has_response_tags(declared, version))


def tagged_frame(correlation_id: int, parts: list[Buffer], has_tags: bool) -> list[Buffer]:
    """Like `response_frame`, for callers that know if the header has tagged fields."""
    sizes = list(map(len, parts))
    size = sum(sizes)
    if has_tags:
        head = _LENGTH_AND_ID_AND_TAGS.pack(size + 5, correlation_id)
    else:
        head = _LENGTH_AND_ID.pack(size + 4, correlation_id)
    return _join(head, parts, sizes, size)


def request_frame(
    correlation_id: int,
    client_id: str | None,
    declared: type[Any],
    version: int,
    parts: list[Buffer],
) -> list[Buffer]:
    """Buffers to send for a request with the encoded body `parts`."""
    wire = wire_of(declared)
    name = b"" if client_id is None else client_id.encode()
    tags = b"\0" if wire.is_flexible(version) else b""
    sizes = list(map(len, parts))
    body = sum(sizes)
    size = 10 + len(name) + len(tags) + body
    length = -1 if client_id is None else len(name)
    head = _LENGTH_AND_REQUEST_HEADER.pack(size, wire.key, version, correlation_id, length)
    return _join(head + name + tags, parts, sizes, body)


def has_response_tags(declared: type[Any], version: int) -> bool:
    wire: Wire = declared.WIRE
    flexible = wire.flexible
    return flexible is not None and version >= flexible and wire.key != API_VERSIONS_KEY


def skip_header_tags(view: memoryview, position: int, end: int, count: int) -> int:
    """Position after the tagged fields of a header."""
    try:
        return skip_tags(view[:end], position, end, count)
    except IndexError as error:
        raise PeerError("header: tagged fields are cut short") from error


def _join(head: bytes, parts: list[Buffer], sizes: list[int], size: int) -> list[Buffer]:
    if size < PART_BYTES_JOINED:
        return [b"".join((head, *parts))]
    out: list[Buffer] = []
    small: list[Buffer] = [head]
    for part, part_size in zip(parts, sizes, strict=True):
        if part_size < PART_BYTES_JOINED:
            small.append(part)
            continue
        if small:
            out.append(b"".join(small))
            small = []
        out.append(part)
    if small:
        out.append(b"".join(small))
    return out
