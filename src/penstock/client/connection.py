"""Connection to one broker: pipelined requests, replies in the same order, matched by id.

Owns the socket, version negotiation (ApiVersions first, then for each API the highest version that
both sides support), request timeouts and requests in flight. `cluster` chooses the broker and
retries.

Invariants: each request gets exactly one reply or error. A request that times out closes the
connection, because replies come in order and the next one would wait behind it. The outcome of the
request is unknown then (`RequestTimeout`, `ConnectionLost`).

If the broker limits the lifetime of a session (KIP-368), the client authenticates again in time.
Brokers accept no other request meanwhile, so requests are queued until that is done.

Splits a byte stream into frames for a BufferedProtocol, without copying large ones. Small frames
arrive in a scratch buffer and are copied out. A frame that does not fit gets a buffer of its own
size, which the kernel fills directly: records of a large fetch are memoryviews into it. The
length is checked against a maximum before allocation.

Fresh memory costs a page fault per page. So the buffer of a large frame may be reused
(`reused_bytes_max`), but only once no view of it is left.
"""

import asyncio
import ssl
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

from penstock import __version__
from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.base.ports import Buffer
from penstock.client.errors import ConnectionLost, RequestTimeout, Unreachable, Untrusted, reason
from penstock.wire.codec import reader, writer
from penstock.wire.framing import read_response_header, request_frame
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.schema import wire_of

_LENGTH = struct.Struct(">i")
_SCRATCH_BYTES = 64 * 1024


class FrameCutter:
    """Receiving side of one connection: `space` returns a buffer, `received` the frames in it."""

    __slots__ = (
        "_body",
        "_filled",
        "_frame_bytes_max",
        "_reused_bytes_max",
        "_scratch",
        "_size",
        "_spare",
        "_view",
    )

    def __init__(self, frame_bytes_max: int, reused_bytes_max: int = 0) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._reused_bytes_max = reused_bytes_max
        self._spare: bytearray | None = None
        self._size = 0
        self._scratch = bytearray(_SCRATCH_BYTES)
        self._view = memoryview(self._scratch)
        self._body: bytearray | None = None
        self._filled = 0

    def space(self) -> memoryview:
        """Returns the buffer for the next bytes; never empty."""
        if self._body is not None:
            return memoryview(self._body)[self._filled : self._size]
        return self._view[self._filled :]

    def received(self, count: int) -> Iterator[memoryview]:
        """Yields frames that `count` more bytes complete, without their length prefix.

        Must be exhausted before the next call of `space`. Raises PeerError for an invalid length.
        """
        self._filled += count
        if self._body is not None:
            if self._filled == self._size:
                body, self._body, self._filled = self._body, None, 0
                if len(body) <= self._reused_bytes_max:
                    self._spare = body
                yield memoryview(body)[: self._size]
            return
        position = 0
        while self._filled - position >= 4:
            (size,) = _LENGTH.unpack_from(self._scratch, position)
            if not 0 < size <= self._frame_bytes_max:
                raise PeerError(self._bad_length(position, size))
            body_at = position + 4
            if self._filled - body_at >= size:
                position = body_at + size
                yield memoryview(bytes(self._view[body_at:position]))
            elif size + 4 > _SCRATCH_BYTES:
                self._start_body(size, body_at)
                return
            else:
                break
        rest = self._filled - position
        if position and rest:
            self._scratch[:rest] = self._scratch[position : self._filled]
        self._filled = rest

    def _start_body(self, size: int, body_at: int) -> None:
        spare, self._spare = self._spare, None
        if spare is not None and len(spare) >= size and _is_free(spare):
            body = spare
        else:
            body = bytearray(size)
        copied = self._filled - body_at
        body[:copied] = self._view[body_at : self._filled]
        self._body = body
        self._size = size
        self._filled = copied

    def _bad_length(self, position: int, size: int) -> str:
        start = bytes(self._view[position : min(self._filled, position + 16)])
        if start.startswith((b"HTTP", b"SSH-")):
            protocol = "HTTP" if start.startswith(b"HTTP") else "SSH"
            return f"the peer speaks {protocol}, not Kafka's protocol; is this the Kafka port?"
        return f"frame of {size} bytes is not within 1..{self._frame_bytes_max}"


def _is_free(buffer: bytearray) -> bool:
    """True if no view of the buffer is left: only then can its length change."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True


Answer = TypeVar("Answer")

_API_VERSIONS = 18
_SASL = (17, 36)
REAUTHENTICATE_AT = 0.85
"""Fraction of the session lifetime after which the client authenticates again."""
_INT16_AT = slice(4, 6)


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """Settings of a connection."""

    client_id: str = "penstock"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    frame_bytes_max: int = 256 << 20
    """Limits the size of a reply; a fetch may be as large as its max_bytes plus one batch."""
    reused_bytes_max: int = 0
    """Size up to which the buffer of a reply is reused once no view of it is left."""
    in_flight_max: int = 256
    """Number of requests in flight at which `call` waits."""
    tls: ssl.SSLContext | Callable[[], ssl.SSLContext] | None = None
    """TLS context, or a function called for each connection, since certificates may change."""


@dataclass(slots=True)
class _InFlight:
    answer: type[Any]
    version: int
    future: asyncio.Future[Any]
    timer: asyncio.TimerHandle


class _QueuedRequest(NamedTuple):
    """Request that waits until the client is authenticated again."""

    correlation_id: int
    frame: list[Buffer]
    waiting: _InFlight | None
    """None: the request has no reply."""


Authenticate = Callable[["Connection"], Awaitable[None]]


class Connection(asyncio.BufferedProtocol):
    """Connection to a broker, opened by `connect` and usable until `is_closed`."""

    def __init__(self, address: Address, config: ConnectionConfig) -> None:
        self.address = address
        self.config = config
        self.versions: dict[int, tuple[int, int]] = {}
        """Versions that the broker supports: API key to its lowest and highest version."""
        self._loop = asyncio.get_running_loop()
        self._cutter = FrameCutter(config.frame_bytes_max, config.reused_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._error: Exception | None = None
        self._in_flight: dict[int, _InFlight] = {}
        self._correlation_id = 0
        self._is_paused = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self.session_lifetime_ms = 0
        """Lifetime of the session, as the broker said; 0: as long as the connection."""
        self._is_renewing = False
        self._queued: list[_QueuedRequest] = []
        self._renewal: asyncio.TimerHandle | asyncio.Task[None] | None = None

    # Interface for callers.

    @property
    def is_closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def version_of(self, request: type[Any], limit: int | None = None) -> int:
        """Returns the highest version of this request that both sides support, at most `limit`."""
        wire = wire_of(request)
        low, high = wire.versions
        if limit is not None:
            high = min(high, limit)
        theirs = self.versions.get(wire.key)
        if theirs is None:
            raise Refused(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.address} does not support {wire.name}; is the broker too old?",
            )
        version = min(high, theirs[1])
        if version < max(low, theirs[0]):
            raise Refused(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.address} supports {wire.name} versions {theirs[0]}-{theirs[1]}, "
                f"this client {low}-{high}: upgrade the older side",
            )
        return version

    async def call(
        self,
        request: object,
        answer: type[Answer],
        *,
        version: int | None = None,
        timeout_ms: int | None = None,
    ) -> Answer:
        """Sends a request and returns its reply; waits while `in_flight_max` is reached."""
        while (
            self._is_paused
            or len(self._in_flight) >= self.config.in_flight_max
            or (self._is_renewing and wire_of(type(request)).key not in _SASL)
        ):
            slot = self._loop.create_future()
            self._waiting.append(slot)
            await slot
        return await self.send(request, answer, version=version, timeout_ms=timeout_ms)

    def send(
        self,
        request: object,
        answer: type[Answer],
        *,
        version: int | None = None,
        timeout_ms: int | None = None,
    ) -> "asyncio.Future[Answer]":
        """Sends a request immediately, in the order of calls; returns the future of its reply."""
        if version is None:
            version = self.version_of(type(request))
        correlation_id, frame = self._frame(request, version)
        if timeout_ms is None:
            timeout_ms = self.config.request_timeout_ms
        future: asyncio.Future[Answer] = self._loop.create_future()
        timer = self._loop.call_later(
            timeout_ms / 1000, self._expire, wire_of(type(request)).name, timeout_ms
        )
        waiting = _InFlight(answer, version, future, timer)
        self._write(type(request), _QueuedRequest(correlation_id, frame, waiting))
        return future

    def post(self, request: object, *, version: int | None = None) -> None:
        """Sends a request that has no reply (produce with acks=0)."""
        version = self.version_of(type(request)) if version is None else version
        self._write(type(request), _QueuedRequest(*self._frame(request, version), None))

    def close(self, error: Exception | None = None) -> None:
        """Closes immediately; requests in flight fail with `error`, by default ConnectionLost."""
        if self._transport is None:
            return
        if self._error is None:
            self._error = error
        self._transport.abort()

    async def wait_closed(self) -> None:
        await asyncio.shield(self._closed)

    # Sending.

    def _frame(self, request: object, version: int) -> tuple[int, list[Buffer]]:
        if self._transport is None or self._transport.is_closing():
            raise self._lost()
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        cls = type(request)
        parts: list[Buffer] = []
        writer(cls, version)(request, parts)
        frame = request_frame(self._correlation_id, self.config.client_id, cls, version, parts)
        return self._correlation_id, frame

    def _write(self, request: type[Any], made: _QueuedRequest) -> None:
        assert self._transport is not None
        if self._is_renewing and wire_of(request).key not in _SASL:
            self._queued.append(made)
            return
        if made.waiting is not None:
            self._in_flight[made.correlation_id] = made.waiting
        self._transport.writelines(made.frame)

    def _expire(self, name: str, timeout_ms: int) -> None:
        self.close(
            RequestTimeout(
                f"{self.address} did not answer {name} within {timeout_ms / 1000:g} s; "
                "the broker may be overloaded or the network slow"
            )
        )

    # Re-authentication.

    def renew(self, authenticate: Authenticate) -> None:
        """Schedules re-authentication before the session ends, each time anew."""
        if self.session_lifetime_ms > 0:
            delay_s = REAUTHENTICATE_AT * self.session_lifetime_ms / 1000
            self._renewal = self._loop.call_later(delay_s, self._begin_renewal, authenticate)

    def _begin_renewal(self, authenticate: Authenticate) -> None:
        self._renewal = self._loop.create_task(self._renew(authenticate))

    async def _renew(self, authenticate: Authenticate) -> None:
        self._is_renewing = True
        try:
            await authenticate(self)
        except (Refused, PeerError, OSError) as error:
            self.close(error)
            return
        self._is_renewing = False
        queued, self._queued = self._queued, []
        if self._transport is not None:
            for made in queued:
                if made.waiting is not None:
                    self._in_flight[made.correlation_id] = made.waiting
                self._transport.writelines(made.frame)
            self.renew(authenticate)
        self._wake()

    # Receiving: called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._cutter.space()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._cutter.received(nbytes):
                self._receive(frame)
        except PeerError as error:
            self.close(PeerError(f"{self.address} broke the protocol: {error}"))

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._error is None and isinstance(exc, OSError):
            self._error = ConnectionLost(f"connection to {self.address} ended: {reason(exc)}")
        if isinstance(self._renewal, asyncio.TimerHandle):
            self._renewal.cancel()
        in_flight, self._in_flight = self._in_flight, {}
        queued, self._queued = self._queued, []
        unsent = [made.waiting for made in queued if made.waiting is not None]
        for waiting in (*in_flight.values(), *unsent):
            waiting.timer.cancel()
            if not waiting.future.done():
                waiting.future.set_exception(self._lost())
        self._wake()
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._wake()

    def _receive(self, frame: memoryview) -> None:
        if len(frame) < 4:
            raise PeerError(f"reply of {len(frame)} bytes is too short")
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        # Brokers reply in order; retries of a producer depend on it.
        expected = next(iter(self._in_flight), None)
        if correlation_id != expected:
            raise PeerError(f"got the reply to request {correlation_id} instead of {expected}")
        waiting = self._in_flight.pop(correlation_id)
        waiting.timer.cancel()
        self._wake()
        if waiting.future.done():  # The caller was cancelled.
            return
        try:
            waiting.future.set_result(_decode(frame, waiting.answer, waiting.version))
        except PeerError as error:
            waiting.future.set_exception(PeerError(f"{self.address} broke the protocol: {error}"))
            raise

    def _wake(self) -> None:
        while self._waiting:
            slot = self._waiting.popleft()
            if not slot.done():
                slot.set_result(None)

    def _lost(self) -> Exception:
        error = self._error
        if error is None:
            return ConnectionLost(f"connection to {self.address} was closed by the broker")
        # Each caller gets its own instance, since raising adds a traceback to it.
        return type(error)(*error.args)


def _decode(frame: memoryview, answer: type[Answer], version: int) -> Answer:
    end = len(frame)
    if wire_of(answer).key == _API_VERSIONS:
        # A broker that does not support this version replies in version 0 (KIP-511).
        code = int.from_bytes(frame[_INT16_AT], "big", signed=True)
        version = 0 if code == ErrorCode.UNSUPPORTED_VERSION else version
    _, position = read_response_header(frame, 0, end, answer, version)
    message, position = reader(answer, version)(frame, position, end)
    if position != end:
        raise PeerError(
            f"{end - position} bytes too many after {wire_of(answer).name} version {version}"
        )
    return message


async def connect(
    address: Address,
    config: ConnectionConfig,
    authenticate: Authenticate | None = None,
) -> Connection:
    """Opens a connection and negotiates versions. Raises Unreachable with advice."""
    loop = asyncio.get_running_loop()
    tls = config.tls() if callable(config.tls) else config.tls
    try:
        async with asyncio.timeout(config.connect_timeout_ms / 1000):
            _, connection = await loop.create_connection(
                lambda: Connection(address, config), address.host, address.port, ssl=tls
            )
    except ssl.SSLCertVerificationError as error:
        raise Untrusted(
            f"{address} is not trusted: {error.verify_message}; is it this broker's CA "
            "(ssl.ca.location, ssl.truststore.location), and its certificate for this host?"
        ) from error
    except OSError as error:
        raise Unreachable(
            f"cannot reach {address}: {reason(error)}; is the broker running? "
            "start one with `penstock up`"
        ) from error
    try:
        await _negotiate(connection)
        if authenticate is not None:
            await authenticate(connection)
            connection.renew(authenticate)
    except BaseException as error:
        connection.close()
        await connection.wait_closed()
        if isinstance(error, ConnectionLost):
            raise Unreachable(
                f"{address} closed the connection instead of answering ApiVersions; "
                "is this the Kafka port, and does it need TLS?"
            ) from error
        raise
    return connection


async def _negotiate(connection: Connection) -> None:
    low, high = wire_of(ApiVersionsRequest).versions
    request = ApiVersionsRequest(
        client_software_name="penstock", client_software_version=__version__
    )
    timeout_ms = connection.config.connect_timeout_ms
    answer = await connection.call(
        request, ApiVersionsResponse, version=high, timeout_ms=timeout_ms
    )
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        theirs = next((row for row in answer.api_keys if row.api_key == _API_VERSIONS), None)
        version = low if theirs is None else max(low, min(high, theirs.max_version))
        answer = await connection.call(
            request, ApiVersionsResponse, version=version, timeout_ms=timeout_ms
        )
    if answer.error_code:
        raise PeerError(f"{connection.address} refused ApiVersions (code {answer.error_code})")
    connection.versions = {
        row.api_key: (row.min_version, row.max_version) for row in answer.api_keys
    }
