"""Serves an ASGI application on the loop that is already running.

Owns the listener, the limits on what a peer may send before it is understood, and the graceful
stop. uvicorn gives the HTTP/1.1 protocol class; its `Server` is not used, because that one takes
over signal handlers, ends the process when a port is taken, and wakes up ten times a second.

Bounds: connections, bytes and number of headers, seconds until a request head must be complete,
seconds an idle connection is kept, bytes of body (`body_limit`). Going over one ends that
connection only.
"""

import asyncio
import contextlib
import logging
import ssl
from typing import Any

from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from penstock.http.app import HttpState, build_app
from penstock.http.auditing import tell_stranger
from penstock.http.authentication import Authentication
from penstock.http.body_limit import BodyLimit
from penstock.http.exchange import Waits
from penstock.http.metering import Metering
from penstock.http.peers import Peers, read_networks

CONNECTIONS_MAX = 4096
"""A long poll or a stream holds one for as long as it waits."""
HEAD_BYTES_MAX = 32 * 1024
HEADERS_MAX = 100
HEAD_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 30
REST_TIMEOUT_S = 2.0
"""For the rest of a body after its request was answered: it is taken, and dropped."""
STOP_TIMEOUT_S = 5.0
HEAD = b"HTTP/"
"""What the head of an answer begins with."""


class JoiningTransport:
    """A connection's transport that sends the head of an answer together with what follows it.

    uvicorn writes the two one after the other, which is two system calls here, and two wake-ups of
    whoever waits for the answer. A head that nothing follows in the same turn goes alone.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(HEAD):
            self._head = data
            self._loop.call_soon(self._send_head)
            return
        self._transport.write(data)

    def _send_head(self) -> None:
        if self._head and not self._transport.is_closing():
            self.write(b"")

    def close(self) -> None:
        self._send_head()
        self._transport.close()


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which on its own believes any number of header bytes, at any pace."""

    def __init__(self, config: Config, server_state: ServerState, drained: asyncio.Event) -> None:
        super().__init__(config, server_state, {})
        self._drained = drained
        self._refusal: str | None = None
        self._is_reading_head = True
        self._head_bytes = 0
        self._head_bytes_unparsed = 0
        self._head_deadline: asyncio.TimerHandle | None = None
        self._rest_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(JoiningTransport(transport, self.loop))  # type: ignore[arg-type]
        self._drained.clear()
        self._expect_head()
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_deadline()
        self._forget_rest()
        super().connection_lost(exc)
        if not self.connections:
            self._drained.set()

    def data_received(self, data: bytes) -> None:
        if self._is_reading_head:
            self._expect_head()
            # The parser keeps a header to itself until it is whole, so unfinished ones are
            # counted here, as raw bytes.
            self._head_bytes_unparsed += len(data)
        super().data_received(data)
        if self._head_deadline is not None and self._head_bytes_unparsed > HEAD_BYTES_MAX:
            self.send_400_response(f"Request head over {HEAD_BYTES_MAX} bytes.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        self._is_reading_head = True
        self._expect_head()

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value) + 4)
        super().on_header(name, value)
        if len(self.headers) > HEADERS_MAX:
            self._refuse(f"More than {HEADERS_MAX} headers.")

    def on_headers_complete(self) -> None:
        self._is_reading_head = False
        self._head_bytes_unparsed = 0
        self._forget_deadline()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._is_reading_head = True
        self._forget_rest()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Nobody reads the rest of this body. A peer that is still sending it would lose the answer
        # if the connection ended now; but it may not trickle it in for ever.
        if self.cycle.response_complete and self.cycle.more_body and self._rest_deadline is None:
            self._rest_deadline = self.loop.call_later(REST_TIMEOUT_S, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            super().send_400_response(self._refusal or msg)

    def _count_head(self, count: int) -> None:
        self._head_bytes += count
        if self._head_bytes > HEAD_BYTES_MAX:
            self._refuse(f"Request head over {HEAD_BYTES_MAX} bytes.")

    def _refuse(self, reason: str) -> None:
        # An exception in a parser callback makes uvicorn answer 400 and close.
        self._refusal = reason
        raise ValueError(reason)

    def _expect_head(self) -> None:
        if self._head_deadline is None:
            self._head_deadline = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.abort)

    def _forget_deadline(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

    def _forget_rest(self) -> None:
        if self._rest_deadline is not None:
            self._rest_deadline.cancel()
            self._rest_deadline = None


class HttpServer:
    """A listening HTTP port. `stop` lets running requests finish, then closes."""

    def __init__(
        self,
        host: str,
        server: asyncio.Server,
        state: ServerState,
        drained: asyncio.Event,
        waits: Waits,
        scheme: str,
    ) -> None:
        self._server = server
        self._waits = waits
        self._state = state
        self._drained = drained
        self.port: int = server.sockets[0].getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{scheme}://{shown}:{self.port}"

    async def stop(self) -> None:
        self._server.close()
        self._waits.end()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._drained.wait(), STOP_TIMEOUT_S)
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(self._state.connections):
            connection.transport.abort()
        await self._server.wait_closed()


async def start_http(
    host: str, port: int, state: HttpState, tls: ssl.SSLContext | None = None
) -> HttpServer:
    """Listens on `host`:`port` (0: any free one) until stopped. Raises OSError when it cannot."""
    # A peer's bad request is answered, not logged: strangers do not get to write our log.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    app: ASGIApp = BodyLimit(build_app(state), state.door)
    if state.users is not None:
        door = state.door
        assert door is not None
        app = Authentication(
            app,
            state.users,
            state.users_generation,
            state.pepper,
            door.ctx,
            lambda peer: tell_stranger(door, peer),
        )
    if state.annex is not None:
        app = state.annex.wrap(app)
    if state.door is not None:
        app = Metering(app, state.door)
        proxies = state.door.ctx.configs.items("http.trusted.proxies")
        app = Peers(app, read_networks(proxies))
    config = Config(
        app,
        http=HttpToolsProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=IDLE_TIMEOUT_S,
    )
    config.load()
    server_state = ServerState()
    drained = asyncio.Event()
    server = await asyncio.get_running_loop().create_server(
        lambda: BoundedProtocol(config, server_state, drained),
        host,
        port,
        ssl=tls,
        ssl_handshake_timeout=None if tls is None else HEAD_TIMEOUT_S,
    )
    scheme = "http" if tls is None else "https"
    return HttpServer(host, server, server_state, drained, state.waits, scheme)
