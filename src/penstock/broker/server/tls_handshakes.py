"""Connections on their way through a TLS handshake: counted from the first moment, and bounded.

A peer that has not finished its handshake costs tens of kilobytes and is nobody yet. So the
listener accepts by itself, asks whether the address may have one more, and lets at most
`HANDSHAKES_MAX` be under way. One too many ends the one that has been at it longest: an honest
client is through in milliseconds, and whoever only holds a place open makes room.

Owns: the listening socket of a TLS listener and the handshakes. What comes out is a connection like
any other.
"""

import asyncio
import contextlib
import logging
import ssl
from collections import Counter as Tally
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.broker.server.socket_buffers import SYSTEMS_OWN, Buffers

if TYPE_CHECKING:
    from socket import socket as Socket  # noqa: TID251 - for its type only

log = logging.getLogger("penstock.server")

HANDSHAKES_MAX = 1_000
BACKLOG = 1024
RETRY_SECONDS = 0.1
BOTH_WAYS = 2


class Handshakes:
    """Accepts, admits, and shakes hands."""

    def __init__(
        self,
        context: Callable[[], ssl.SSLContext],
        connect: Callable[[], asyncio.BaseProtocol],
        admits: Callable[[str, int, int], bool],
        turn_s: Callable[[], float],
        timeout_s: float,
    ) -> None:
        """`context` is asked for each newcomer; `admits(address, pending, pending_of_it)` says
        whether one more may try, `turn_s` in how many seconds its turn comes."""
        self._context = context
        self._connect = connect
        self._admits = admits
        self._turn_s = turn_s
        self._timeout_s = timeout_s
        self._socket: Socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        # In the order in which they began.
        self._pending: dict[asyncio.Task[None], Socket] = {}
        self._per_ip: Tally[str] = Tally()
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._pending)

    async def open(
        self, host: str, port: int, backlog: int = BACKLOG, buffers: Buffers = SYSTEMS_OWN
    ) -> int:
        """Listens and answers with the port."""
        loop = asyncio.get_running_loop()
        # For its way of resolving and binding an address; it accepts nothing.
        server = await loop.create_server(self._connect, host, port, start_serving=False)
        self._socket = server.sockets[0].dup()
        server.close()
        self._socket.setblocking(False)
        buffers.give_to(self._socket)
        self._socket.listen(backlog)
        self._accepting = loop.create_task(self._accept(self._socket))
        chosen: int = self._socket.getsockname()[1]
        return chosen

    async def close(self) -> None:
        """Accepts no more, and gives up what is under way."""
        if self._accepting is not None:
            self._accepting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._accepting
        if self._socket is not None:
            self._socket.close()
        for sock in list(self._pending.values()):
            _hang_up(sock)
        await asyncio.gather(*self._pending, return_exceptions=True)

    async def _accept(self, listening: "Socket") -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:
                # No descriptors left, most likely: they come back when connections go.
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
            task = loop.create_task(self._shake(accepted, ip))
            self._pending[task] = accepted
            # Others are served between two newcomers; else a full backlog is taken in at once.
            await asyncio.sleep(0)

    def _evict(self) -> None:
        """Ends the oldest; its task notices, and clears up after it."""
        task = next(iter(self._pending))
        self.evicted += 1
        _hang_up(self._pending.pop(task))

    async def _shake(self, accepted: "Socket", ip: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            if (turn_s := self._turn_s()) > 0:
                await asyncio.sleep(turn_s)
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


def _hang_up(sock: "Socket") -> None:
    """The transport that has taken it over sees the end of it."""
    with contextlib.suppress(OSError):
        sock.shutdown(BOTH_WAYS)
