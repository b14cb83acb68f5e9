"""Splits a byte stream into frames for a BufferedProtocol, without copying large ones.

Small frames arrive in a scratch buffer and are copied out. A frame that does not fit gets a buffer
of its own size, which the kernel fills directly: records of a large fetch are memoryviews into it.
The length is checked against a maximum before allocation.

Fresh memory costs a page fault per page. So the buffer of a large frame may be reused
(`reused_bytes_max`), but only once no view of it is left.
"""

import struct
from collections.abc import Iterator

from penstock.base.errors import PeerError

_LENGTH = struct.Struct(">i")
_SCRATCH_BYTES = 64 * 1024


class FrameCutter:
    """Receiving side of one connection: `space` returns a buffer, `received` the frames in it."""

    __slots__ = (
        "_body",
        "_filled",
        "_frame_bytes_max",
        "_reused_bytes_max",
        "_scratch",
        "_size",
        "_spare",
        "_view",
    )

    def __init__(self, frame_bytes_max: int, reused_bytes_max: int = 0) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._reused_bytes_max = reused_bytes_max
        self._spare: bytearray | None = None
        self._size = 0
        self._scratch = bytearray(_SCRATCH_BYTES)
        self._view = memoryview(self._scratch)
        self._body: bytearray | None = None
        self._filled = 0

    def space(self) -> memoryview:
        """Returns the buffer for the next bytes; never empty."""
        if self._body is not None:
            return memoryview(self._body)[self._filled : self._size]
        return self._view[self._filled :]

    def received(self, count: int) -> Iterator[memoryview]:
        """Yields frames that `count` more bytes complete, without their length prefix.

        Must be exhausted before the next call of `space`. Raises PeerError for an invalid length.
        """
        self._filled += count
        if self._body is not None:
            if self._filled == self._size:
                body, self._body, self._filled = self._body, None, 0
                if len(body) <= self._reused_bytes_max:
                    self._spare = body
                yield memoryview(body)[: self._size]
            return
        position = 0
        while self._filled - position >= 4:
            (size,) = _LENGTH.unpack_from(self._scratch, position)
            if not 0 < size <= self._frame_bytes_max:
                raise PeerError(self._bad_length(position, size))
            body_at = position + 4
            if self._filled - body_at >= size:
                position = body_at + size
                yield memoryview(bytes(self._view[body_at:position]))
            elif size + 4 > _SCRATCH_BYTES:
                self._start_body(size, body_at)
                return
            else:
                break
        rest = self._filled - position
        if position and rest:
            self._scratch[:rest] = self._scratch[position : self._filled]
        self._filled = rest

    def _start_body(self, size: int, body_at: int) -> None:
        spare, self._spare = self._spare, None
        if spare is not None and len(spare) >= size and _is_free(spare):
            body = spare
        else:
            body = bytearray(size)
        copied = self._filled - body_at
        body[:copied] = self._view[body_at : self._filled]
        self._body = body
        self._size = size
        self._filled = copied

    def _bad_length(self, position: int, size: int) -> str:
        start = bytes(self._view[position : min(self._filled, position + 16)])
        if start.startswith((b"HTTP", b"SSH-")):
            protocol = "HTTP" if start.startswith(b"HTTP") else "SSH"
            return f"the peer speaks {protocol}, not Kafka's protocol; is this the Kafka port?"
        return f"frame of {size} bytes is not within 1..{self._frame_bytes_max}"


def _is_free(buffer: bytearray) -> bool:
    """True if no view of the buffer is left: only then can its length change."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True
