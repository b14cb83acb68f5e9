"""What waits to be sent on one connection, in order, when it is more than a few small replies.

A fetch reply is a short head and long stretches of log files. The stretches stay files until the
socket has room, and then go from the page cache to the socket without passing through this
process (sendfile), so a connection holds a small amount of memory however much its peer asked
for and however slowly it reads.

While the transport holds bytes of its own it must stay the only one that writes to the socket.
So we write directly only when its buffer is empty; when the socket is full we pass one chunk
through the transport, which tells us (`resume_writing`) when that chunk has left.
"""

import asyncio
import os
from collections import deque
from collections.abc import Iterable
from typing import TypeGuard

from penstock.base.ports import Buffer, Slice

IPPROTO_TCP = 6
TCP_CORK = 3
CHUNK_BYTES = 512 * 1024
"""Above the transport's high-water mark, so that it reports when the socket takes more."""


class Outbox:
    """A queue in front of a transport."""

    __slots__ = ("_descriptor", "_parts", "_socket", "_transport", "is_paused")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        # TLS and simulated transports have no socket that we may write to.
        sock = transport.get_extra_info("socket")
        is_plain = sock is not None and transport.get_extra_info("sslcontext") is None
        self._socket = sock
        self._descriptor: int = sock.fileno() if is_plain else -1
        self._parts: deque[Buffer | Slice] = deque()
        self.is_paused = False
        """The transport has said that the socket is full."""

    def __bool__(self) -> bool:
        return bool(self._parts)

    def put(self, parts: Iterable[Buffer | Slice]) -> None:
        """Takes parts over; `pump` sends them."""
        self._parts.extend(parts)

    def pump(self) -> None:
        """Sends until nothing is left or the socket is full. OSError, EOFError: give up."""
        if self._descriptor < 0:
            self._pump()
            return
        # Corked, a head leaves together with the file that follows it: one packet and one
        # wake-up of the peer less for each reply.
        self._socket.setsockopt(IPPROTO_TCP, TCP_CORK, 1)
        try:
            self._pump()
        finally:
            self._socket.setsockopt(IPPROTO_TCP, TCP_CORK, 0)

    def _pump(self) -> None:
        parts = self._parts
        while parts and not self.is_paused:
            part = parts[0]
            if is_buffer(part):
                parts.popleft()
                self._write(part, at_once=bool(parts) and not is_buffer(parts[0]))
                continue
            assert not isinstance(part, bytes | bytearray | memoryview)
            if self._descriptor >= 0 and not self._transport.get_write_buffer_size():
                part.send_to(self._descriptor)
            if len(part):
                self._transport.write(part.take(CHUNK_BYTES))
            if not len(part):
                parts.popleft()

    def _write(self, part: Buffer, at_once: bool) -> None:
        """A head is written at once when a file follows it, so that the file can go directly."""
        if at_once and self._descriptor >= 0 and not self._transport.get_write_buffer_size():
            try:
                sent = os.write(self._descriptor, part)
            except BlockingIOError:
                sent = 0
            if sent == len(part):
                return
            part = memoryview(part)[sent:]
        self._transport.write(part)

    def clear(self) -> None:
        self._parts.clear()


def is_buffer(part: Buffer | Slice) -> TypeGuard[Buffer]:
    return isinstance(part, bytes | bytearray | memoryview)
