"""Unread responses: memory limits, and which responses are dropped."""

import asyncio
import contextlib
import functools
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.gateway.http import protocol, response_budget
from penstock.gateway.http.forwarded import ForwardedFor
from penstock.gateway.http.problems import PRINCIPAL
from penstock.gateway.http.protocol import CONNECTION, BoundedProtocol
from penstock.gateway.http.request_io import WaitingRequests
from penstock.gateway.http.response_budget import ResponseBudget
from penstock.gateway.http.server_sent_events import EventStream
from tests.run_with import run_with
from tests.unit.gateway.http.test_protocol import serve

BODY = b"x" * (4 << 20)
BYTES_MAX, HOLDER_MAX = 32 << 20, 16 << 20
PEERS = 40
STATUSES = (b"HTTP/1.1 200", b"HTTP/1.1 503")


class Site:
    """Application with large responses, and clients that do not read them."""

    def __init__(self, app: ASGIApp, bytes_max: int = BYTES_MAX, share: int = HOLDER_MAX) -> None:
        self.answers = ResponseBudget(app, bytes_max, share)
        self.connections: dict[BoundedProtocol, None] = {}
        self.asked = 0
        self._peers: list[socket.socket] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for name, value in scope["headers"]:
            if name == b"x-user":
                scope[PRINCIPAL] = value.decode()
        self.connections[scope[CONNECTION]] = None
        self.asked += 1
        await ForwardedFor(self.answers, [])(scope, receive, send)

    async def ask(self, port: int, user: str = "") -> socket.socket:
        """Sends a request without reading the response."""
        loop = asyncio.get_running_loop()
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.setblocking(False)
        await loop.sock_connect(peer, ("127.0.0.1", port))
        who = f"x-user: {user}\r\n" if user else ""
        await loop.sock_sendall(peer, f"GET / HTTP/1.1\r\nhost: x\r\n{who}\r\n".encode())
        self._peers.append(peer)
        return peer

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await asyncio.sleep(0.001)

    def kept(self) -> int:
        """Bytes in the transports' buffers."""
        return sum(
            one.transport.get_write_buffer_size()
            for one in self.connections
            if not one.transport.is_closing()
        )

    def open_count(self) -> int:
        return sum(not one.transport.is_closing() for one in self.connections)

    def disconnect(self) -> None:
        for peer in self._peers:
            peer.close()


async def large(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(BODY)(scope, receive, send)


def on_site(scene: Callable[[Site, int], Awaitable[None]], share: int = HOLDER_MAX) -> None:
    """Runs a test with large responses and the port that serves them."""
    site = Site(large, share=share)
    serve(functools.partial(scene, site), site)


async def head_of(peer: socket.socket) -> bytes:
    return (await asyncio.get_running_loop().sock_recv(peer, 12))[:12]


async def read_all(peer: socket.socket, count: int) -> int:
    """Reads up to `count` bytes; returns their number."""
    loop, size = asyncio.get_running_loop(), 0
    while size < count and (some := await loop.sock_recv(peer, 1 << 20)):
        size += len(some)
    return size


@run_with(on_site)
async def test_unread_responses_are_limited_per_holder_and_in_all(site: Site, port: int) -> None:
    for user in ("User:ann", "User:bob", "User:cyd"):
        peers = [await site.ask(port, user) for _ in range(PEERS)]
        heads = [await head_of(peer) for peer in peers]
        assert heads.count(STATUSES[0]) <= HOLDER_MAX // len(BODY)
        assert heads.count(STATUSES[0]) + heads.count(STATUSES[1]) == PEERS
        assert site.answers.shares.held(user) <= HOLDER_MAX
    assert 0 < site.answers.shares.taken <= BYTES_MAX
    each = protocol.WRITE_BUFFER_BYTES + protocol.PIECE_BYTES + 1024
    assert site.kept() <= 3 * PEERS * each
    site.disconnect()
    await site.until(lambda: site.answers.shares.taken == 0)


@run_with(on_site)
async def test_reading_client_is_served_while_others_do_not_read(site: Site, port: int) -> None:
    for _ in range(PEERS):
        await site.ask(port, "User:ann")
    await site.until(lambda: site.asked == PEERS)
    for _ in range(3):
        peer = await site.ask(port, "User:bob")
        assert await read_all(peer, len(BODY)) >= len(BODY)
    site.disconnect()


@run_with(on_site, len(BODY) * 2)
async def test_anonymous_clients_share_the_limit_of_their_address(site: Site, port: int) -> None:
    peers = [await site.ask(port) for _ in range(4)]
    heads = sorted([await head_of(peer) for peer in peers])
    assert heads == [STATUSES[0]] * 2 + [STATUSES[1]] * 2
    assert site.answers.shares.held("127.0.0.1") == 2 * len(BODY)
    site.disconnect()


@run_with(on_site, len(BODY))
async def test_stalled_response_is_dropped_for_a_new_one(
    site: Site, port: int, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_budget, "GRACE_SECONDS", 0.0)

    await site.ask(port)
    await site.until(lambda: any(one.paused_at is not None for one in site.connections))
    peer = await site.ask(port)
    assert await read_all(peer, len(BODY)) >= len(BODY)
    site.disconnect()


@run_with(on_site)
async def test_client_that_reads_nothing_is_disconnected(
    site: Site, port: int, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "STALL_SECONDS", 0.05)

    peer = await site.ask(port)
    await site.until(
        lambda: site.asked == 1 and all(one.transport.is_closing() for one in site.connections)
    )
    await site.until(lambda: site.answers.shares.taken == 0)
    size = 0
    with contextlib.suppress(ConnectionResetError):
        size = await read_all(peer, len(BODY))
    assert size < len(BODY)
    site.disconnect()


def test_unread_event_streams_end() -> None:
    chunk, waits = b"x" * (1 << 20), WaitingRequests()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        async def chunks() -> AsyncIterator[bytes]:
            while True:
                yield chunk

        await EventStream(chunks(), waits)(scope, receive, send)

    site = Site(stream, share=4 * len(chunk))

    async def scene(port: int) -> None:
        for _ in range(PEERS):
            await site.ask(port)
        await site.until(lambda: site.asked == PEERS)
        await site.until(lambda: site.open_count() <= 4)
        assert site.answers.shares.taken <= 4 * len(chunk)
        site.disconnect()
        await site.until(lambda: site.answers.shares.taken == 0)

    serve(scene, site)
