"""Queue of unsent replies of one connection, in order, for more than a few small replies.

A fetch reply is a short head and large slices of log files. Slices stay files until the socket is
writable, and then go from the page cache to the socket without passing through this process
(sendfile). So a connection needs little memory however much its peer requested and however slowly
it reads.

While the transport's buffer has bytes, only the transport may write to the socket. So the queue
writes to the socket only while that buffer is empty. When the socket is full, the queue waits until
it is writable (`writable_poller`). If bytes cannot be written directly (TLS, a file that is not in
the page cache), one chunk at a time passes through the transport, which calls `resume_writing` when
the chunk is sent.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable

from penstock.base.ports import Buffer, Slice
from penstock.broker.server.writable_poller import WritablePoller

SMALL = (bytes, bytearray)
"""Parts that are copied; other parts are sent in place: file slices, views and remainders."""
BUFFERS = (bytes, bytearray, memoryview)
"""Tuples, since isinstance is called for each part of each reply: unions take 3 times as long."""
PIECE_BYTES = 256 * 1024
"""Size of decrypted pieces for a direct write: about what a socket buffer holds."""
CHUNK_BYTES = 512 * 1024
"""Above the transport's high-water mark, so that it calls `resume_writing`."""


class SendQueue:
    """Queue of unsent bytes in front of a transport."""

    __slots__ = (
        "_descriptor",
        "_on_writable",
        "_poller",
        "_transport",
        "has_moved",
        "is_full",
        "is_paused",
        "parts",
    )

    def __init__(
        self, transport: asyncio.Transport, poller: WritablePoller, on_writable: Callable[[], None]
    ) -> None:
        """`on_writable` is called when a full socket is writable again, and must call `pump`.

        It is not called in the middle of a file slice.
        """
        self._transport = transport
        self._poller = poller
        self._on_writable = on_writable
        # TLS and simulated transports have no socket for direct writes.
        sock = transport.get_extra_info("socket")
        is_plain = sock is not None and transport.get_extra_info("sslcontext") is None
        self._descriptor: int = sock.fileno() if is_plain else -1
        self.parts: deque[Buffer | Slice] = deque()
        """Unsent parts, readable by other objects."""
        self.is_paused = False
        """True while the transport reports a full buffer."""
        self.is_full = False
        """True after a direct write filled the socket; the poller reports when it is writable."""
        self.has_moved = False
        """True if bytes were sent without calling `on_writable`; its reader resets it."""

    @property
    def is_busy(self) -> bool:
        """True while the last replies are not sent."""
        return self.is_paused or bool(self.parts)

    def put(self, parts: Iterable[Buffer | Slice]) -> None:
        """Adds parts; `pump` sends them."""
        self.parts.extend(parts)

    def pump(self) -> None:
        """Sends until the queue is empty or the socket is full. OSError and EOFError are final."""
        parts, descriptor = self.parts, self._descriptor
        while parts and not self.is_paused:
            part = parts[0]
            if isinstance(part, BUFFERS):
                parts.popleft()
                # Large parts, and the head before them, since bytes must stay in order.
                is_direct = not isinstance(part, SMALL) or (
                    bool(parts) and not isinstance(parts[0], SMALL)
                )
                if not self._write(part, is_direct):
                    return
                continue
            is_direct = descriptor >= 0 and not self._transport.get_write_buffer_size()
            if is_direct and part.send_to(descriptor):
                if len(part):
                    self.is_full = True
                    self._poller.wait(descriptor, self._send_more)
                    return
                parts.popleft()
                continue
            piece = part.take(PIECE_BYTES if is_direct else CHUNK_BYTES)
            if not len(part):
                parts.popleft()
            if not self._write(piece, is_direct):
                return

    def _send_more(self) -> bool:
        """Continues on a socket that is writable again; returns True if it is full again.

        A consumer that catches up causes a thousand calls per second, nearly always in the middle
        of a file slice, which is continued at once.
        """
        parts = self.parts
        self.is_full = False
        part = parts[0] if parts and not self.is_paused else b""
        if not isinstance(part, BUFFERS) and not self._transport.get_write_buffer_size():
            try:
                is_sent = part.send_to(self._descriptor)
            except (OSError, EOFError):
                is_sent = False  # The same error occurs in `pump`, whose caller handles it.
            if is_sent and len(part):
                self.is_full = self.has_moved = True
                return True
            if is_sent:
                parts.popleft()
        self._on_writable()
        return self.is_full

    def _write(self, part: Buffer, is_direct: bool) -> bool:
        """Writes a part; returns False if the socket is full."""
        if is_direct and self._descriptor >= 0 and not self._transport.get_write_buffer_size():
            try:
                sent = os.write(self._descriptor, part)
            except BlockingIOError:
                sent = 0
            if sent == len(part):
                return True
            self.parts.appendleft(memoryview(part)[sent:])
            self.is_full = True
            self._poller.wait(self._descriptor, self._send_more)
            return False
        if len(part) > CHUNK_BYTES and isinstance(part, memoryview):
            self.parts.appendleft(part[CHUNK_BYTES:])
            part = part[:CHUNK_BYTES]
        self._transport.write(part)
        return True

    def clear(self) -> None:
        """Drops all parts and the socket: the connection is closed."""
        self.parts.clear()
        self.is_full = False
        if self._descriptor >= 0:
            self._poller.forget(self._descriptor)
            self._descriptor = -1
