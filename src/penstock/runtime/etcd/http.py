"""HTTP/1.1 connection to etcd's JSON gateway: one request at a time, or one endless response.

Owns the bytes on the wire. httptools (llhttp) parses; the event loop provides TLS and sockets.
Invariants: after a failure the connection is closed and every waiter gets the error; a response,
its head and a line of a stream are bounded; a stream that is not consumed stops reading its socket.
`pool` and `channel` choose the endpoint, retry, and interpret the JSON.
"""

import asyncio
import socket
import ssl
from collections import deque
from dataclasses import dataclass
from typing import cast

import httptools

ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""Size limit of a whole response, and of one line of a stream."""
HEAD_BYTES_MAX = 64 * 1024
UNREAD_BYTES_MAX = 1024 * 1024
"""Unconsumed bytes of a stream above which its socket is not read (backpressure)."""
KEEPALIVE_IDLE_S = 5
KEEPALIVE_INTERVAL_S = 2
KEEPALIVE_COUNT = 3
UNACKNOWLEDGED_MS_MAX = 10_000


class AnswerTooLarge(ConnectionError):
    """The response exceeds `ANSWER_BYTES_MAX`; the connection is closed."""


@dataclass(frozen=True, slots=True)
class EtcdEndpoint:
    """Address of one etcd member."""

    host: str
    port: int
    is_tls: bool

    def __str__(self) -> str:
        scheme = "https" if self.is_tls else "http"
        return f"{scheme}://{self.authority}"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class EtcdConnection(asyncio.Protocol):
    """Connection to one member, created by `connect`."""

    def __init__(self, endpoint: EtcdEndpoint) -> None:
        self.endpoint = endpoint
        self.is_closed = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._failure: ConnectionError | None = None
        self._news: asyncio.Future[None] | None = None
        self._is_streaming = False
        self._is_paused = False
        self._reset()

    def _reset(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._status = 0
        self._head_bytes = 0
        self._is_complete = False
        self._is_kept = False
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._lines: deque[bytes] = deque()
        self._lines_bytes = 0

    # Calls of the client.

    async def ask(self, method: str, path: str, body: bytes, token: str) -> tuple[int, bytes]:
        """Sends one request; returns status and body of the response."""
        self._send(method, path, body, token)
        while not self._is_complete:
            await self._wait()
        if not self._is_kept:
            self.close()
        return self._status, b"".join(self._parts)

    async def start_stream(self, path: str, body: bytes, token: str) -> int:
        """Requests an endless response and returns its status; then call `next_line`."""
        self._is_streaming = True
        self._send("POST", path, body, token)
        while not self._status:
            await self._wait()
        return self._status

    async def next_line(self) -> bytes | None:
        """Next line of a stream; None at its end."""
        while not self._lines:
            if self._is_complete:
                return None
            await self._wait()
        line = self._lines.popleft()
        self._lines_bytes -= len(line)
        if self._is_paused and self._lines_bytes <= UNREAD_BYTES_MAX // 2:
            assert self._transport is not None
            self._is_paused = False
            self._transport.resume_reading()
        return line

    def close(self, reason: str = "closed") -> None:
        self._fail(ConnectionAbortedError(f"the connection to {self.endpoint} was {reason}"))

    def _send(self, method: str, path: str, body: bytes, token: str) -> None:
        if self._failure is not None:
            raise self._failure
        assert self._news is None, "one request at a time"
        assert self._transport is not None
        self._reset()
        authorization = f"Authorization: {token}\r\n" if token else ""
        # Without a leader a watch would wait forever: with this header etcd ends it instead.
        leader = "Grpc-Metadata-hasleader: true\r\n" if self._is_streaming else ""
        head = (
            f"{method} {path} HTTP/1.1\r\n"
            f"Host: {self.endpoint.authority}\r\n"
            "Content-Type: application/json\r\n"
            f"{authorization}{leader}"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._transport.write(head.encode() + body)

    async def _wait(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._news = self._loop.create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _fail(self, failure: ConnectionError) -> None:
        if self._failure is None:
            self._failure = failure
            self.is_closed = True
            if self._transport is not None:
                self._transport.abort()
            self._tell()

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionAbortedError(f"{self.endpoint} does not speak HTTP: {error}"))

    def eof_received(self) -> None:
        self._fail(ConnectionResetError(f"{self.endpoint} closed the connection"))

    def connection_lost(self, error: Exception | None) -> None:
        reason = f": {error}" if error else ""
        self._fail(ConnectionResetError(f"the connection to {self.endpoint} was lost{reason}"))

    # Callbacks of the parser.

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > HEAD_BYTES_MAX:
            self._fail(
                AnswerTooLarge(f"{self.endpoint} sent a head of more than {HEAD_BYTES_MAX} bytes")
            )

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        self._tell()

    def on_body(self, data: bytes) -> None:
        if self._failure is not None:
            return
        if self._is_streaming:
            *ended, data = data.split(b"\n")
            for line in ended:
                self._end_line(line)
        self._parts.append(data)
        self._parts_bytes += len(data)
        if self._parts_bytes > ANSWER_BYTES_MAX:
            self._fail(AnswerTooLarge(f"{self.endpoint} sent more than {ANSWER_BYTES_MAX} bytes"))
        elif self._lines_bytes > UNREAD_BYTES_MAX and not self._is_paused:
            assert self._transport is not None
            self._is_paused = True
            self._transport.pause_reading()

    def _end_line(self, line: bytes) -> None:
        if self._parts:
            line = b"".join([*self._parts, line])
            self._parts.clear()
            self._parts_bytes = 0
        if line:
            self._lines.append(line)
            self._lines_bytes += len(line)
            self._tell()

    def on_message_complete(self) -> None:
        if self._is_streaming:
            self._end_line(b"")
        self._is_complete = True
        self._is_kept = self._parser.should_keep_alive()
        self._tell()


async def connect(endpoint: EtcdEndpoint, tls: ssl.SSLContext | None) -> EtcdConnection:
    """Connects to a member. Raises OSError with the endpoint in its text."""
    loop = asyncio.get_running_loop()
    try:
        transport, connection = await loop.create_connection(
            lambda: EtcdConnection(endpoint),
            endpoint.host,
            endpoint.port,
            ssl=tls if endpoint.is_tls else None,
            server_hostname=endpoint.host if endpoint.is_tls else None,
        )
    except ssl.SSLError as error:
        reason = error.reason or error
        if isinstance(error, ssl.SSLCertVerificationError):
            reason = error.verify_message
        raise ConnectionError(f"{endpoint}: TLS failed: {reason}") from error
    except OSError as error:
        raise ConnectionError(f"{endpoint}: {error.strerror or error}") from error
    _notice_silence(transport.get_extra_info("socket"))
    return connection


def _notice_silence(sock: socket.socket | None) -> None:
    """Sets keepalive, so that the kernel detects a vanished peer in seconds, not hours."""
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEPALIVE_COUNT),
        ("TCP_USER_TIMEOUT", UNACKNOWLEDGED_MS_MAX),
    ):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
