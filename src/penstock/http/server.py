"""Serves an ASGI application on the loop that is already running.

Owns the listener, the limits on what a peer may send before it is understood, and the graceful
stop. uvicorn gives the HTTP/1.1 protocol class; its `Server` is not used, because that one takes
over signal handlers, ends the process when a port is taken, and wakes up ten times a second.

Bounds: connections (`admission`), bytes and number of headers, seconds until a request head must be
complete, how slowly a body may come, seconds an idle connection is kept, bytes of body
(`body_limit`). Going over one ends that connection only.

Leaves to others: TLS. Whoever has certificates opens the port for it (`OpenTls`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from penstock.http.admission import Admission
from penstock.http.app import HttpState, build_app
from penstock.http.auditing import tell_stranger
from penstock.http.authentication import Authentication
from penstock.http.body_limit import BodyLimit
from penstock.http.exchange import Waits
from penstock.http.metering import Metering
from penstock.http.origins import Origins
from penstock.http.peers import Network, Peers, read_networks

HEAD_BYTES_MAX = 32 * 1024
HEADERS_MAX = 100
HEAD_TIMEOUT_S = 10.0
BODY_TIMEOUT_S = 20.0
BODY_BYTES_PER_S = 32 << 10
"""A body may take so long, and a second more for so much of it."""
IDLE_TIMEOUT_S = 30
REST_TIMEOUT_S = 2.0
"""For the rest of a body after its request was answered: it is taken, and dropped."""
STOP_TIMEOUT_S = 5.0
LAST_TURNS_MAX = 100
HEAD = b"HTTP/"
"""What the head of an answer begins with."""


class Listening(Protocol):
    """An open port."""

    @property
    def port(self) -> int: ...

    async def close(self) -> None:
        """Takes no more; whoever came in stays."""
        ...


Connect: TypeAlias = Callable[[], asyncio.BaseProtocol]
Admits: TypeAlias = Callable[[str, int, int], bool]
"""Of an address, how many shake hands, and how many of them are its own."""
OpenTls: TypeAlias = Callable[[Connect, Admits, str, int], Awaitable[Listening]]
"""Opens a port that speaks TLS. Raises OSError when it cannot."""


class PlainPort:
    """A port without TLS."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.port: int = server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._server.close()


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

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        drained: asyncio.Event,
        admission: Admission,
        *,
        is_admitted: bool,
    ) -> None:
        """`is_admitted`: it was asked about before its handshake."""
        super().__init__(config, server_state, {})
        self._drained = drained
        self._admission = admission
        self._is_admitted = is_admitted
        self._address: str | None = None
        self._refusal: str | None = None
        self._is_reading_head = True
        self._head_bytes = 0
        self._head_bytes_unparsed = 0
        self._head_deadline: asyncio.TimerHandle | None = None
        self._rest_deadline: asyncio.TimerHandle | None = None
        self._is_reading_body = False
        self._body_deadline: asyncio.TimerHandle | None = None
        self._body_began_at = 0.0
        self._body_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(JoiningTransport(transport, self.loop))  # type: ignore[arg-type]
        self._drained.clear()
        self._expect_head()
        address = self.client[0] if self.client else "unknown"
        if self._is_admitted or self._admission.admits(address):
            self._address = address
            self._admission.opened(address)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_deadline()
        self._forget_rest()
        self._forget_body()
        if self._address is not None:
            self._admission.lost(self._address)
            self._address = None
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
        if self._is_reading_body:
            # Most bodies are whole by now, and need no deadline.
            self._body_bytes += len(data)
            if self._body_deadline is None:
                self._expect_body()

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
        self._is_reading_body = True
        self._body_bytes = 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._is_reading_head = True
        self._is_reading_body = False
        self._forget_rest()
        self._forget_body()

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

    def _expect_body(self) -> None:
        self._body_began_at = self.loop.time()
        self._body_deadline = self.loop.call_later(BODY_TIMEOUT_S, self._judge_body)

    def _judge_body(self) -> None:
        """Ends a connection that trickles its body in: it holds a place, and memory."""
        if self.flow.read_paused:
            # We are the ones who do not read on.
            self._body_bytes = 0
            self._expect_body()
            return
        allowed_s = BODY_TIMEOUT_S + self._body_bytes / BODY_BYTES_PER_S
        left_s = self._body_began_at + allowed_s - self.loop.time()
        if left_s <= 0:
            self.transport.abort()
        else:
            self._body_deadline = self.loop.call_later(left_s, self._judge_body)

    def _forget_body(self) -> None:
        if self._body_deadline is not None:
            self._body_deadline.cancel()
            self._body_deadline = None

    def _forget_rest(self) -> None:
        if self._rest_deadline is not None:
            self._rest_deadline.cancel()
            self._rest_deadline = None


class HttpServer:
    """A listening HTTP port. `stop` lets running requests finish, then closes."""

    def __init__(
        self,
        host: str,
        listening: Listening,
        state: ServerState,
        drained: asyncio.Event,
        waits: Waits,
        scheme: str,
    ) -> None:
        self._listening = listening
        self._waits = waits
        self._state = state
        self._drained = drained
        self.port = listening.port
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{scheme}://{shown}:{self.port}"

    async def stop(self) -> None:
        await self._listening.close()
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
        # Their ends are told from the loop.
        for _ in range(LAST_TURNS_MAX):
            if not self._state.connections:
                break
            await asyncio.sleep(0)


async def start_http(
    host: str, port: int, state: HttpState, open_tls: OpenTls | None = None
) -> HttpServer:
    """Listens on `host`:`port` (0: any free one) until stopped. Raises OSError when it cannot."""
    # A peer's bad request is answered, not logged: strangers do not get to write our log.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    proxies: list[Network] = []
    if state.door is not None:
        proxies = read_networks(state.door.ctx.configs.items("http.trusted.proxies"))
    config = Config(
        _wrapped(state, host, proxies),
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
    admission = Admission(state.door, proxies)

    def connect() -> BoundedProtocol:
        return BoundedProtocol(
            config, server_state, drained, admission, is_admitted=open_tls is not None
        )

    listening: Listening
    if open_tls is not None:
        listening = await open_tls(connect, admission.admits, host, port)
    else:
        loop = asyncio.get_running_loop()
        listening = PlainPort(await loop.create_server(connect, host, port))
    scheme = "http" if open_tls is None else "https"
    return HttpServer(host, listening, server_state, drained, state.waits, scheme)


def _wrapped(state: HttpState, host: str, proxies: list[Network]) -> ASGIApp:
    """The application, and what every request goes through before it."""
    app: ASGIApp = BodyLimit(build_app(state), state.door)
    door = state.door
    if state.users is not None:
        assert door is not None
        app = Authentication(
            app,
            state.users,
            door.ctx,
            lambda peer: tell_stranger(door, peer),
        )
    if state.annex is not None:
        app = state.annex.wrap(app)
    if door is not None:
        app = Peers(Origins(Metering(app, door), door, host, proxies), proxies)
    return app
