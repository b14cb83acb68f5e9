"""Request header, as a server reads it: API key, version, correlation id and client id.

Invariant: an unknown API or version still yields the fields of header v1, so that the caller can
respond.
"""

import struct
from typing import Final

from penstock.base.errors import PeerError
from penstock.wire.apis import REQUESTS
from penstock.wire.framing import skip_header_tags
from penstock.wire.schema import wire_of

_REQUEST_HEADER = struct.Struct(">hhih")

_flexible_since: Final = {
    key: wire_of(request).versions[1] + 1 if (first := wire_of(request).flexible) is None else first
    for key, request in REQUESTS.items()
}
_last_version: Final = {key: wire_of(request).versions[1] for key, request in REQUESTS.items()}


def read_request_header(
    view: memoryview, position: int, end: int
) -> tuple[int, int, int, str | None, int]:
    """Reads `(api_key, api_version, correlation_id, client_id, position of the body)`.

    For an unknown API or version the position is that after header v1.
    """
    if end - position < 10:
        raise PeerError(f"request header: {end - position} bytes instead of at least 10")
    key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(view, position)
    position += 10
    client_id = None
    if length >= 0:
        close = position + length
        if close > end:
            raise PeerError(
                f"request header: client id of {length} bytes, but {end - position} remain"
            )
        try:
            client_id = str(view[position:close], "utf-8")
        except UnicodeDecodeError as error:
            raise PeerError(f"request header: {error}") from error
        position = close
    elif length != -1:
        raise PeerError(f"request header: client id of {length} bytes, only -1 (null) is negative")
    if _flexible_since.get(key, 32767) <= version <= _last_version.get(key, -1):
        if position >= end:
            raise PeerError("request header: cut short before its tagged fields")
        tags = view[position]
        position += 1
        if tags:
            position = skip_header_tags(view, position, end, tags)
    return key, version, correlation_id, client_id, position
