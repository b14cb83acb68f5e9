"""What waits to be sent on one connection, in order, when it is more than a few small replies.

A fetch reply is a short head and long stretches of log files. The stretches stay files until the
socket has room, and then go from the page cache to the socket without passing through this
process (sendfile), so a connection holds a small amount of memory however much its peer asked
for and however slowly it reads.

While the transport holds bytes of its own it must stay the only one that writes to the socket.
So we write directly only when its buffer is empty. When the socket is full of what we wrote, we
watch it ourselves, through a second descriptor of the same socket (the loop lets nobody but the
transport watch its own), and go on when there is room. Where bytes cannot go directly (TLS, a file
that is no longer in memory), one chunk at a time passes through the transport, which tells us
(`resume_writing`) when that chunk has left.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeGuard

from penstock.base.ports import Buffer, Slice

SMALL = (bytes, bytearray)
BUFFERS = (bytes, bytearray, memoryview)
"""Tuples: each part of each reply is looked at, and unions take three times as long."""
PIECE_BYTES = 256 * 1024
"""Opened for a socket that takes it directly: about what such a socket has room for."""
CHUNK_BYTES = 512 * 1024
"""Above the transport's high-water mark, so that it reports when the socket takes more."""


class Outbox:
    """A queue in front of a transport."""

    __slots__ = (
        "_descriptor",
        "_is_full",
        "_is_watching",
        "_parts",
        "_room",
        "_transport",
        "_watched",
        "is_paused",
    )

    def __init__(self, transport: asyncio.Transport, room: Callable[[], None]) -> None:
        """`room()` is called when a socket that was full takes more: pump then."""
        self._transport = transport
        self._room = room
        # TLS and simulated transports have no socket that we may write to.
        sock = transport.get_extra_info("socket")
        is_plain = sock is not None and transport.get_extra_info("sslcontext") is None
        self._descriptor: int = sock.fileno() if is_plain else -1
        self._watched = -1  # The second descriptor, made when the socket was full first.
        self._is_full = False
        self._is_watching = False
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
        parts = self._parts
        while parts and not self.is_paused and not self._is_full:
            part = parts[0]
            if is_buffer(part):
                parts.popleft()
                self._write(part, at_once=is_large(part) or (bool(parts) and is_large(parts[0])))
                continue
            assert not isinstance(part, BUFFERS)
            direct = self._descriptor >= 0 and not self._transport.get_write_buffer_size()
            if direct and part.send_to(self._descriptor):
                if len(part):
                    self._await_room()
                else:
                    parts.popleft()
                continue
            piece = part.take(PIECE_BYTES if direct else CHUNK_BYTES)
            if not len(part):
                parts.popleft()
            self._write(piece, at_once=direct)

    def _await_room(self) -> None:
        self._is_full = True
        if self._is_watching:
            return
        if self._watched < 0:
            self._watched = os.dup(self._descriptor)
        self._is_watching = True
        asyncio.get_running_loop().add_writer(self._watched, self._has_room)

    def _has_room(self) -> None:
        """Stays watching where that fills the socket again, as it does throughout a long reply."""
        self._is_full = False
        self._room()
        if self._is_watching and not self._is_full:
            self._is_watching = False
            asyncio.get_running_loop().remove_writer(self._watched)

    def _write(self, part: Buffer, at_once: bool) -> None:
        """What is large goes directly, and the head before it, too, so that it can."""
        if at_once and self._descriptor >= 0 and not self._transport.get_write_buffer_size():
            try:
                sent = os.write(self._descriptor, part)
            except BlockingIOError:
                sent = 0
            if sent < len(part):
                self._parts.appendleft(memoryview(part)[sent:])
                self._await_room()
            return
        if len(part) > CHUNK_BYTES and isinstance(part, memoryview):
            self._parts.appendleft(part[CHUNK_BYTES:])
            part = part[:CHUNK_BYTES]
        self._transport.write(part)

    def clear(self) -> None:
        """The connection is gone: forgets everything, and its socket."""
        self._parts.clear()
        self._descriptor = -1
        if self._watched >= 0:
            if self._is_watching:
                self._is_watching = False
                asyncio.get_running_loop().remove_writer(self._watched)
            os.close(self._watched)
            self._watched = -1


def is_buffer(part: Buffer | Slice) -> TypeGuard[Buffer]:
    return isinstance(part, BUFFERS)


def is_large(part: Buffer | Slice) -> bool:
    """To be sent from where it is: a stretch of a file, or one that was opened, or a rest."""
    return not isinstance(part, SMALL)
