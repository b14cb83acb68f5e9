"""Cuts a byte stream into frames for a BufferedProtocol, without copying the large ones.

Small frames are collected in one scratch buffer and copied out. A frame that does not fit there
gets a buffer of its own size, which the kernel fills directly: records of a large fetch are
memoryviews into it. The length is checked against a maximum before anything is allocated.

Fresh memory is paid for page by page, so a reader that is done with one large frame before the next
may have its buffer used again (`reused_bytes_max`); as long as a view of it is held, it is not.
"""

import struct
from collections.abc import Iterator

from penstock.base.errors import PeerError

_LENGTH = struct.Struct(">i")
_SCRATCH_BYTES = 64 * 1024


class FrameCutter:
    """The receiving side of one connection: give it space with `space`, bytes with `received`."""

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
        """Where the next bytes go; never empty."""
        if self._body is not None:
            return memoryview(self._body)[self._filled : self._size]
        return self._view[self._filled :]

    def received(self, count: int) -> Iterator[memoryview]:
        """Frames completed by `count` more bytes, without their length prefix.

        Must be exhausted before the next call of `space`. Raises PeerError on a length that no
        frame may have.
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
        have = self._filled - body_at
        body[:have] = self._view[body_at : self._filled]
        self._body = body
        self._size = size
        self._filled = have

    def _bad_length(self, position: int, size: int) -> str:
        start = bytes(self._view[position : min(self._filled, position + 16)])
        if start.startswith((b"HTTP", b"SSH-")):
            protocol = "HTTP" if start.startswith(b"HTTP") else "SSH"
            return f"it speaks {protocol}, not Kafka's protocol; is this the Kafka port?"
        return f"a frame of {size} bytes (at most {self._frame_bytes_max} are accepted)"


def _is_free(buffer: bytearray) -> bool:
    """Whether nobody holds a view of it: then, and only then, it may change its length."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True
