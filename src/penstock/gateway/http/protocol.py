"""Connection of the HTTP port: HTTP/1.1 with limits on what the client may send.

uvicorn's protocol class implements HTTP, over httptools. On its own it accepts any number of header
bytes at any pace, loses the body of a request that asks for a protocol upgrade, and fails with a
traceback for pipelined requests of a disconnected client. This module handles all of that.

Bounds: bytes and number of headers, time until a head must be complete, minimum pace of a body,
time a client may read nothing. Exceeding one ends that connection only. Malformed requests get a
400 before any other layer sees them, also if the path or the query is not UTF-8.
"""

import asyncio
from typing import Any
from urllib.parse import unquote_to_bytes

import httptools
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from penstock.gateway.http.connection_limits import ConnectionLimiter
from penstock.gateway.http.security_headers import DefaultHeaders

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
