"""Connection of the HTTP port: HTTP/1.1 with limits on what the client may send.

uvicorn's protocol class implements HTTP, over httptools. On its own it accepts any number of header
bytes at any pace, loses the body of a request that asks for a protocol upgrade, and fails with a
traceback for pipelined requests of a disconnected client. This module handles all of that.

Bounds: bytes and number of headers, time until a head must be complete, minimum pace of a body,
time a client may read nothing. Exceeding one ends that connection only. Malformed requests get a
400 before any other layer sees them, also if the path or the query is not UTF-8.

Security headers for browsers on every response of the HTTP port, whichever layer made it. They
keep browsers from sniffing data as a page, showing it in a frame, or loading anything for it;
over TLS they require TLS for later visits (HSTS). Responses of the layers below the application,
such as a 400 for a malformed request, have them, too. A response's own header of the same name
wins: pages allow their own scripts and styles.

Memory limits for responses that clients have not read yet (ADR 36). A response is passed to its
connection in pieces, as the client reads it, and the rest counts: for all clients together up to
`WAITING_BYTES_MAX`, for one user, or one address of anonymous clients, up to `HOLDER_BYTES_MAX`.
A response that does not fit is replaced by a 503; an event stream that has started ends with its
connection. Before that, responses of the same holder whose clients have not read for
`GRACE_SECONDS` are dropped. A client that reads nothing for long is disconnected in any case
(`protocol`).

So unread responses hold that much memory, plus each transport's buffer:
`protocol.WRITE_BUFFER_BYTES` and one piece.
"""

import asyncio
from typing import Any
from urllib.parse import unquote_to_bytes

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from penstock.base.errors import ErrorCode, Refused
from penstock.base.fair_pool import FairPool
from penstock.gateway.http.connection_limits import ConnectionLimiter
from penstock.gateway.http.problems import NOT_AVAILABLE, PRINCIPAL, problem
from penstock.gateway.http.request_io import peer_of

Rows = list[tuple[bytes, bytes]]
POLICY = b"default-src 'none'; frame-ancestors 'none'"


def headers_of(hsts_seconds: int | None = None) -> Rows:
    """Returns the headers. `hsts_seconds`: time for which browsers must use TLS; None: no TLS."""
    rows = [
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
        (b"content-security-policy", POLICY),
    ]
    if hsts_seconds is not None:
        rows.append((b"strict-transport-security", b"max-age=%d" % hsts_seconds))
    return rows


class DefaultHeaders:
    """Wraps the application for one request so that no header is sent twice."""

    def __init__(self, app: ASGIApp, cycle: RequestResponseCycle) -> None:
        self._app = app
        self._cycle = cycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        cycle = self._cycle

        async def send_once(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                rows = cycle.default_headers
                cycle.default_headers = [row for row in rows if row[0] not in own]
            await send(message)

        await self._app(scope, receive, send_once)


HEAD_BYTES_MAX = 32 * 1024
HEADERS_MAX = 100
HEAD_TIMEOUT_S = 10.0
BODY_TIMEOUT_S = 20.0
BODY_BYTES_PER_S = 32 << 10
"""A body must arrive within `BODY_TIMEOUT_S`, plus a second for each `BODY_BYTES_PER_S` bytes."""
DRAIN_TIMEOUT_S = 2.0
"""Time limit for the rest of a body after the response was sent; its bytes are dropped."""
STALL_SECONDS = 60.0
"""Time after which a connection is closed if the client reads nothing of a response."""
WRITE_BUFFER_BYTES = 32 << 10
PIECE_BYTES = 32 << 10
"""Bytes of a response written at a time."""
CONNECTION = "penstock.connection"
"""Key of a request's scope for its connection."""
HEAD = b"HTTP/"
"""First bytes of a response head."""
UPGRADE_HEADERS = (b"connection", b"upgrade", b"http2-settings")
INVALID = "Invalid HTTP request received."


class JoiningTransport:
    """Transport that sends the head of a response together with the first bytes of its body.

    uvicorn writes them one after the other, which costs two system calls here and two wake-ups of
    the client. A head without a body in the same turn of the event loop goes alone.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._transport.is_closing():
            self._head = b""  # The client cannot receive it any more.
            return
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(HEAD):
            self._head = data
            self._loop.call_soon(self._send_head)
            return
        self._transport.write(data)

    def pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _send_head(self) -> None:
        if self._head:
            self.write(b"")

    def close(self) -> None:
        self._send_head()
        self._transport.close()


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        drained: asyncio.Event,
        limiter: ConnectionLimiter,
        *,
        is_admitted: bool,
    ) -> None:
        """`is_admitted`: True if the limiter was asked before the TLS handshake."""
        super().__init__(config, server_state, {})
        self._drained = drained
        self._limiter = limiter
        self._is_admitted = is_admitted
        self._address: str | None = None
        self._refusal: str | None = None
        self._is_reading_head = True
        self._head_bytes = 0
        self._head_bytes_unparsed = 0
        self._head_deadline: asyncio.TimerHandle | None = None
        self._drain_deadline: asyncio.TimerHandle | None = None
        self._is_reading_body = False
        self._body_deadline: asyncio.TimerHandle | None = None
        self._body_began_at = 0.0
        self._body_bytes = 0
        self._running: RequestResponseCycle | None = None
        self._stall_deadline: asyncio.TimerHandle | None = None
        self.paused_at: float | None = None
        """Time since which the client has read nothing; None while it reads."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(JoiningTransport(transport, self.loop))  # type: ignore[arg-type]
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES, low=0)
        self._drained.clear()
        self._expect_head()
        address = self.client[0] if self.client else "unknown"
        if self._is_admitted or self._limiter.admits(address):
            self._address = address
            self._limiter.opened(address)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_head_deadline()
        self._cancel_drain_deadline()
        self._cancel_body_deadline()
        self._cancel_stall_deadline()
        if self._address is not None:
            self._limiter.lost(self._address)
            self._address = None
        self._notify_disconnect()
        super().connection_lost(exc)
        if not self.connections:
            self._drained.set()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._cancel_stall_deadline()
        self.paused_at = self.loop.time()
        self._stall_deadline = self.loop.call_later(STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_stall_deadline()
        super().resume_writing()

    def _cancel_stall_deadline(self) -> None:
        self.paused_at = None
        if self._stall_deadline is not None:
            self._stall_deadline.cancel()
            self._stall_deadline = None

    def _notify_disconnect(self) -> None:
        """Notifies the running request that its client disconnected, and drops those pipelined
        behind it: uvicorn notifies only the request that came in last."""
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        self._running = None
        self.pipeline.clear()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGIApp) -> None:  # type: ignore[override]
        self._running = cycle
        super()._start_asgi_task(cycle, DefaultHeaders(app, cycle))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        if self._is_reading_head:
            self._expect_head()
            # The parser reports only complete headers, so bytes of an incomplete one are counted
            # here.
            self._head_bytes_unparsed += len(data)
        self._unset_keepalive_if_required()
        self._feed(data)
        if self._head_deadline is not None and self._head_bytes_unparsed > HEAD_BYTES_MAX:
            self.send_400_response(f"Request head over {HEAD_BYTES_MAX} bytes.")
        if self._is_reading_body:
            # Most bodies are complete by now, and need no deadline.
            self._body_bytes += len(data)
            if self._body_deadline is None:
                self._expect_body()

    def _feed(self, data: bytes) -> None:
        pieces = [memoryview(data)]  # It may contain thousands of pipelined requests.
        while pieces:
            piece = pieces.pop()
            try:
                self.parser.feed_data(piece)
            except httptools.HttpParserUpgrade as upgrade:
                # The parser stops after the head and ignores the body. A server may ignore a
                # request to upgrade (RFC 9110, 7.8): the head is parsed again without it.
                pieces += [piece[upgrade.args[0] :], memoryview(self._head_without_upgrade())]
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            except httptools.HttpParserError:
                self.send_400_response(INVALID)
                return

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % row for row in self.headers if row[0] not in UPGRADE_HEADERS]
        asked = b",".join(value for name, value in self.headers if name == b"connection").split(
            b","
        )
        kept = [word.strip() for word in asked if word.strip().lower() in (b"close", b"keep-alive")]
        if kept:
            lines.append(b"connection: " + b", ".join(kept))
        return b"\r\n".join([*lines, b"", b""])

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
        self._check_text()
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                self._refuse("CONNECT is not supported: this server is not a proxy.")
            return  # The head is parsed again (`_feed`).
        self.scope[CONNECTION] = self  # type: ignore[literal-required]
        self._is_reading_head = False
        self._head_bytes_unparsed = 0
        self._cancel_head_deadline()
        self._is_reading_body = True
        self._body_bytes = 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._is_reading_head = True
        self._is_reading_body = False
        self._cancel_drain_deadline()
        self._cancel_body_deadline()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # The rest of this body is dropped. A client that is still sending it would lose the
        # response if the connection ended now, but it must not take forever.
        if self.cycle.response_complete and self.cycle.more_body and self._drain_deadline is None:
            self._drain_deadline = self.loop.call_later(DRAIN_TIMEOUT_S, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            super().send_400_response(self._refusal or msg)

    def _check_text(self) -> None:
        if b"%" in self.url:
            try:
                unquote_to_bytes(self.url).decode()
            except UnicodeDecodeError:
                self._refuse("The percent-decoded path and query must be UTF-8.")

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

    def _cancel_head_deadline(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

    def _expect_body(self) -> None:
        self._body_began_at = self.loop.time()
        self._body_deadline = self.loop.call_later(BODY_TIMEOUT_S, self._check_body_pace)

    def _check_body_pace(self) -> None:
        """Ends a connection that sends its body too slowly: it holds a connection and memory."""
        if self.flow.read_paused:
            # This side has paused reading, so the client is not to blame.
            self._body_bytes = 0
            self._expect_body()
            return
        allowed_s = BODY_TIMEOUT_S + self._body_bytes / BODY_BYTES_PER_S
        left_s = self._body_began_at + allowed_s - self.loop.time()
        if left_s <= 0:
            self.transport.abort()
        else:
            self._body_deadline = self.loop.call_later(left_s, self._check_body_pace)

    def _cancel_body_deadline(self) -> None:
        if self._body_deadline is not None:
            self._body_deadline.cancel()
            self._body_deadline = None

    def _cancel_drain_deadline(self) -> None:
        if self._drain_deadline is not None:
            self._drain_deadline.cancel()
            self._drain_deadline = None


WAITING_BYTES_MAX = 256 << 20
HOLDER_BYTES_MAX = 64 << 20
GRACE_SECONDS = 5.0
TURN_BYTES = 8 * PIECE_BYTES
START, BODY = "http.response.start", "http.response.body"


class ResponseBudget:
    """Middleware that limits unread responses."""

    def __init__(
        self,
        app: ASGIApp,
        bytes_max: int = WAITING_BYTES_MAX,
        holder_bytes_max: int = HOLDER_BYTES_MAX,
    ) -> None:
        self._app = app
        self.shares = FairPool(bytes_max, holder_bytes_max)
        self._sending: dict[_PendingResponse, str] = {}
        """Responses that hold bytes, with their holders, oldest first."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        response = _PendingResponse(self, scope, send)
        await self._app(scope, receive, response.send)

    def take(self, response: "_PendingResponse", holder: str, count: int) -> bool:
        """Reserves `count` bytes, if necessary by ending unread responses; False if they do not
        fit."""
        shares = self.shares
        if not shares.take(holder, count):
            is_own = shares.held(holder) + count > shares.holder_max
            now_s = asyncio.get_running_loop().time()
            for one, whose in list(self._sending.items()):
                if (whose == holder or not is_own) and one.is_unread(now_s):
                    one.end()
            if not shares.take(holder, count):
                return False
        self._sending[response] = holder
        return True

    def give(self, response: "_PendingResponse", count: int) -> None:
        self.shares.give(self._sending.pop(response), count)


class _PendingResponse:
    """Response being sent."""

    def __init__(self, budget: ResponseBudget, scope: Scope, send: Send) -> None:
        self._budget = budget
        self._scope = scope
        self._send = send
        self._head: Message | None = None
        self._held = 0
        self._is_dropped = False
        self._connection: BoundedProtocol | None = scope.get(CONNECTION)

    async def send(self, message: Message) -> None:
        if self._is_dropped:
            await asyncio.sleep(0)  # Lets the disconnect be delivered to the sender.
            return
        if message["type"] == START:
            self._head = message
            return
        if message["type"] != BODY:
            await self._send(message)
            return
        body: bytes = message.get("body", b"")
        if len(body) <= PIECE_BYTES:
            await self._begin()
            await self._send(message)
            return
        if not self._budget.take(self, self._holder(), len(body)):
            await self._drop()
            return
        self._held = len(body)
        try:
            await self._begin()
            await self._pass_on(body, bool(message.get("more_body", False)))
        finally:
            self._release()

    def _holder(self) -> str:
        """Holder of the response; authentication has run by now."""
        scope = self._scope
        return str(scope[PRINCIPAL]) if PRINCIPAL in scope else peer_of(scope)

    async def _begin(self) -> None:
        head, self._head = self._head, None
        if head is not None:
            await self._send(head)

    async def _pass_on(self, body: bytes, more_body: bool) -> None:
        view = memoryview(body)
        for start in range(0, len(body), PIECE_BYTES):
            if self._is_dropped:
                return
            piece = bytes(view[start : start + PIECE_BYTES])
            more = more_body or start + PIECE_BYTES < len(body)
            await self._send({"type": BODY, "body": piece, "more_body": more})
            if start % TURN_BYTES == 0:
                # A client that reads fast must not delay the others.
                await asyncio.sleep(0)

    async def _drop(self) -> None:
        self._is_dropped = True
        if self._head is None:
            self.end()
            return
        why = "too many unread responses: read them, or retry later"
        response = problem(Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, why))
        response.status_code = NOT_AVAILABLE

        async def nothing() -> Message:
            return {"type": "http.disconnect"}

        await response(self._scope, nothing, self._send)

    def _release(self) -> None:
        held, self._held = self._held, 0
        if held:
            self._budget.give(self, held)

    def is_unread(self, now_s: float) -> bool:
        paused_at = self._connection.paused_at if self._connection is not None else None
        return paused_at is not None and now_s - paused_at >= GRACE_SECONDS

    def end(self) -> None:
        """Ends the response with its connection; releases its bytes."""
        self._is_dropped = True
        self._release()
        if self._connection is not None:
            self._connection.transport.abort()
