"""Pending TLS handshakes of a listener, counted and bounded.

An unfinished handshake costs tens of kilobytes for an unauthenticated peer. So the listener accepts
connections itself, checks the limits of the address, and runs at most `HANDSHAKES_MAX` handshakes.
Beyond that it ends the oldest one: an honest client finishes in milliseconds, so this one is most
likely held open on purpose.

Owns the listening socket of a TLS listener and the handshakes. A finished handshake becomes an
ordinary connection.
"""

import asyncio
import collections
import contextlib
import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.broker.server.socket_buffers import SYSTEM_DEFAULT, SocketBufferSizes

if TYPE_CHECKING:
    from socket import socket as Socket  # noqa: TID251 - for its type only

log = logging.getLogger("penstock.server")

HANDSHAKES_MAX = 1_000
BACKLOG = 1024
RETRY_SECONDS = 0.1
BOTH_WAYS = 2


class TlsHandshakes:
    """Accepts connections, checks limits and runs handshakes."""

    def __init__(
        self,
        context: Callable[[], ssl.SSLContext],
        connect: Callable[[], asyncio.BaseProtocol],
        admits: Callable[[str, int, int], bool],
        delay_s: Callable[[], float],
        timeout_s: float,
    ) -> None:
        """`context` and `delay_s` are called for each new connection; `delay_s` returns its delay.

        `admits(address, pending, pending_of_it)` returns True if one more may start.
        """
        self._context = context
        self._connect = connect
        self._admits = admits
        self._connection_delay_s = delay_s
        self._timeout_s = timeout_s
        self._socket: Socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        # Oldest first.
        self._pending: dict[asyncio.Task[None], Socket] = {}
        self._per_ip: collections.Counter[str] = collections.Counter()
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._pending)

    async def open(
        self,
        host: str,
        port: int,
        backlog: int = BACKLOG,
        buffers: SocketBufferSizes = SYSTEM_DEFAULT,
    ) -> int:
        """Starts listening and returns the port."""
        loop = asyncio.get_running_loop()
        # Only for resolving and binding an address; it does not accept connections.
        server = await loop.create_server(self._connect, host, port, start_serving=False)
        self._socket = server.sockets[0].dup()
        server.close()
        self._socket.setblocking(False)
        buffers.apply_to(self._socket)
        self._socket.listen(backlog)
        self._accepting = loop.create_task(self._accept(self._socket))
        chosen: int = self._socket.getsockname()[1]
        return chosen

    async def close(self) -> None:
        """Stops accepting and ends pending handshakes."""
        if self._accepting is not None:
            self._accepting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._accepting
        if self._socket is not None:
            self._socket.close()
        for sock in list(self._pending.values()):
            _shut_down(sock)
        await asyncio.gather(*self._pending, return_exceptions=True)

    async def _accept(self, listening: "Socket") -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:
                # Most likely no file descriptors are left, until connections close.
                log.warning("cannot accept a connection: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            ip = str(address[0])
            if not self._admits(ip, len(self._pending), self._per_ip[ip]):
                accepted.close()
                continue
            if len(self._pending) >= HANDSHAKES_MAX:
                self._evict()
            self._per_ip[ip] += 1
            task = loop.create_task(self._handshake(accepted, ip))
            self._pending[task] = accepted
            # Yields, since a full backlog would be accepted at once.
            await asyncio.sleep(0)

    def _evict(self) -> None:
        """Ends the oldest handshake; its task cleans up."""
        task = next(iter(self._pending))
        self.evicted += 1
        _shut_down(self._pending.pop(task))

    async def _handshake(self, accepted: "Socket", ip: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            if (delay_s := self._connection_delay_s()) > 0:
                await asyncio.sleep(delay_s)
            await loop.connect_accepted_socket(
                self._connect,
                accepted,
                ssl=self._context(),
                ssl_handshake_timeout=self._timeout_s,
            )
        except (OSError, EOFError) as error:
            log.debug("no handshake with %s: %s", ip, error)
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._pending.pop(task, None)
            self._per_ip[ip] -= 1
            if self._per_ip[ip] <= 0:
                del self._per_ip[ip]


def _shut_down(sock: "Socket") -> None:
    """Shuts the socket down; the transport that owns it gets the end of the stream."""
    with contextlib.suppress(OSError):
        sock.shutdown(BOTH_WAYS)
