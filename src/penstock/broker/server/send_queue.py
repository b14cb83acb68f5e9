"""What waits to be sent on one connection, in order, when it is more than a few small replies.

A fetch reply is a short head and long stretches of log files. The stretches stay files until the
socket has room, and then go from the page cache to the socket without passing through this
process (sendfile), so a connection holds a small amount of memory however much its peer asked
for and however slowly it reads.

While the transport holds bytes of its own it must stay the only one that writes to the socket.
So we write directly only when its buffer is empty. When the socket is full of what we wrote, we
wait for room ourselves (`room.py`), and go on when there is some. Where bytes cannot go directly
(TLS, a file that is no longer in memory), one chunk at a time passes through the transport, which
tells us (`resume_writing`) when that chunk has left.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable

from penstock.base.ports import Buffer, Slice
from penstock.broker.server.writable_poller import WritablePoller

SMALL = (bytes, bytearray)
"""The rest is sent from where it is: a stretch of a file, or one that was opened, or a rest."""
BUFFERS = (bytes, bytearray, memoryview)
"""Tuples: each part of each reply is looked at, and unions take three times as long."""
PIECE_BYTES = 256 * 1024
"""Opened for a socket that takes it directly: about what such a socket has room for."""
CHUNK_BYTES = 512 * 1024
"""Above the transport's high-water mark, so that it reports when the socket takes more."""


class SendQueue:
    """A queue in front of a transport."""

    __slots__ = (
        "_descriptor",
        "_go_on",
        "_room",
        "_transport",
        "has_moved",
        "is_full",
        "is_paused",
        "parts",
    )

    def __init__(
        self, transport: asyncio.Transport, room: WritablePoller, go_on: Callable[[], None]
    ) -> None:
        """`go_on()` is called when a socket that was full takes more: pump then. Not each time:
        in the middle of a stretch of a file nobody needs to be asked."""
        self._transport = transport
        self._room = room
        self._go_on = go_on
        # TLS and simulated transports have no socket that we may write to.
        sock = transport.get_extra_info("socket")
        is_plain = sock is not None and transport.get_extra_info("sslcontext") is None
        self._descriptor: int = sock.fileno() if is_plain else -1
        self.parts: deque[Buffer | Slice] = deque()
        """What has not left yet, for everybody to look at."""
        self.is_paused = False
        """The transport has said that the socket is full."""
        self.is_full = False
        """We have found that it is, and are told when it takes more."""
        self.has_moved = False
        """Something has left without anybody being asked. Whoever looks puts it back."""

    @property
    def is_busy(self) -> bool:
        """The peer has not taken our last replies yet."""
        return self.is_paused or bool(self.parts)

    def put(self, parts: Iterable[Buffer | Slice]) -> None:
        """Takes parts over; `pump` sends them."""
        self.parts.extend(parts)

    def pump(self) -> None:
        """Sends until nothing is left or the socket is full. OSError, EOFError: give up."""
        parts, descriptor = self.parts, self._descriptor
        while parts and not self.is_paused:
            part = parts[0]
            if isinstance(part, BUFFERS):
                parts.popleft()
                # What is large, and the head before it, too, so that it can.
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
                    self._room.wait(descriptor, self._send_more)
                    return
                parts.popleft()
                continue
            piece = part.take(PIECE_BYTES if is_direct else CHUNK_BYTES)
            if not len(part):
                parts.popleft()
            if not self._write(piece, is_direct):
                return

    def _send_more(self) -> bool:
        """The socket that was full takes more; whether it is full again.

        A consumer that catches up comes here a thousand times a second, nearly always in the middle
        of a stretch of a file: that one goes on at once.
        """
        parts = self.parts
        self.is_full = False
        part = parts[0] if parts and not self.is_paused else b""
        if not isinstance(part, BUFFERS) and not self._transport.get_write_buffer_size():
            try:
                is_sent = part.send_to(self._descriptor)
            except (OSError, EOFError):
                is_sent = False  # And again in `pump`, whose caller knows what to do then.
            if is_sent and len(part):
                self.is_full = self.has_moved = True
                return True
            if is_sent:
                parts.popleft()
        self._go_on()
        return self.is_full

    def _write(self, part: Buffer, is_direct: bool) -> bool:
        """False when the socket is full."""
        if is_direct and self._descriptor >= 0 and not self._transport.get_write_buffer_size():
            try:
                sent = os.write(self._descriptor, part)
            except BlockingIOError:
                sent = 0
            if sent == len(part):
                return True
            self.parts.appendleft(memoryview(part)[sent:])
            self.is_full = True
            self._room.wait(self._descriptor, self._send_more)
            return False
        if len(part) > CHUNK_BYTES and isinstance(part, memoryview):
            self.parts.appendleft(part[CHUNK_BYTES:])
            part = part[:CHUNK_BYTES]
        self._transport.write(part)
        return True

    def clear(self) -> None:
        """The connection is gone: forgets everything, and its socket."""
        self.parts.clear()
        self.is_full = False
        if self._descriptor >= 0:
            self._room.forget(self._descriptor)
            self._descriptor = -1
