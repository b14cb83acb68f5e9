"""HTTP server: serves the ASGI application on the running event loop.

Owns the listener and the graceful stop. uvicorn provides the HTTP/1.1 protocol class (`protocol`).
Its `Server` is not used, because it takes over signal handlers, ends the process when a port is
taken, and wakes up ten times a second.

Bounds: connections and bytes of bodies (`connection_limits`), bytes and pace of requests
(`protocol`), seconds an idle connection is kept.

Leaves TLS to the caller, which opens the TLS port (`OpenTls`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import ServerState

from penstock.gateway.app import HttpState, build_app
from penstock.gateway.http.audit import audit_failed_login
from penstock.gateway.http.authentication import Authentication
from penstock.gateway.http.body_limit import BodyLimit
from penstock.gateway.http.connection_limits import ConnectionLimiter
from penstock.gateway.http.cpu_quota import CpuQuota
from penstock.gateway.http.csrf import CsrfCheck
from penstock.gateway.http.forwarded import ForwardedFor, Network, read_networks
from penstock.gateway.http.protocol import BoundedProtocol
from penstock.gateway.http.request_io import WaitingRequests
from penstock.gateway.http.response_budget import ResponseBudget
from penstock.gateway.http.security_headers import headers_of

IDLE_TIMEOUT_S = 30
STOP_TIMEOUT_S = 5.0
LAST_TURNS_MAX = 100


class OpenPort(Protocol):
    """Listening port."""

    @property
    def port(self) -> int: ...

    async def close(self) -> None:
        """Stops accepting connections; open ones stay."""
        ...


Connect: TypeAlias = Callable[[], asyncio.BaseProtocol]
Admits: TypeAlias = Callable[[str, int, int], bool]
"""True if an address may connect. Arguments: the address, all unfinished TLS handshakes, and those
of this address."""
OpenTls: TypeAlias = Callable[[Connect, Admits, str, int], Awaitable[OpenPort]]
"""Opens a TLS port; raises OSError if it cannot."""


class PlainPort:
    """Listening port without TLS."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.port: int = server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._server.close()


class HttpServer:
    """Listening HTTP port. `stop` lets running requests finish, then closes."""

    def __init__(
        self,
        host: str,
        listening: OpenPort,
        state: ServerState,
        drained: asyncio.Event,
        waits: WaitingRequests,
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
        # The event loop delivers the ends of the connections.
        for _ in range(LAST_TURNS_MAX):
            if not self._state.connections:
                break
            await asyncio.sleep(0)


async def start_http(
    host: str, port: int, state: HttpState, open_tls: OpenTls | None = None
) -> HttpServer:
    """Listens on `host`:`port` (0: any free port) until stopped; raises OSError if it cannot."""
    # Malformed requests are answered, not logged: clients must not be able to fill the log.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    proxies: list[Network] = []
    if state.gateway is not None:
        proxies = read_networks(state.gateway.ctx.configs.items("http.trusted.proxies"))
    config = Config(
        _with_middleware(state, host, proxies),
        http=BoundedProtocol,
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
    server_state.default_headers = headers_of(_hsts_seconds(state, open_tls))
    drained = asyncio.Event()
    limiter = ConnectionLimiter(state.gateway, proxies)

    def connect() -> BoundedProtocol:
        return BoundedProtocol(
            config, server_state, drained, limiter, is_admitted=open_tls is not None
        )

    listening: OpenPort
    if open_tls is not None:
        listening = await open_tls(connect, limiter.admits, host, port)
    else:
        loop = asyncio.get_running_loop()
        listening = PlainPort(await loop.create_server(connect, host, port))
    scheme = "http" if open_tls is None else "https"
    return HttpServer(host, listening, server_state, drained, state.waits, scheme)


def _hsts_seconds(state: HttpState, open_tls: OpenTls | None) -> int | None:
    if open_tls is None or state.gateway is None:
        return None
    return state.gateway.ctx.configs.integer("http.hsts.seconds")


def _with_middleware(state: HttpState, host: str, proxies: list[Network]) -> ASGIApp:
    """Returns the application with its middleware."""
    app: ASGIApp = BodyLimit(build_app(state), state.gateway)
    gateway = state.gateway
    if state.users is not None:
        assert gateway is not None
        app = Authentication(
            app,
            state.users,
            gateway.ctx,
            lambda peer: audit_failed_login(gateway, peer),
        )
    if state.console is not None:
        app = state.console.wrap(app)
    app = ResponseBudget(app)
    if gateway is not None:
        app = ForwardedFor(CsrfCheck(CpuQuota(app, gateway), gateway, host, proxies), proxies)
    return app
