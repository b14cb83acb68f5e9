"""TLS handshakes under way: counted, bounded, and ended when they take a place and do nothing."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trustme

from penstock.broker.server import tls_handshakes
from penstock.broker.server.tls_handshakes import TlsHandshakes
from tests.run_with import run_with

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Echo(asyncio.Protocol):
    """Accepted connection."""

    def __init__(self, made: list["Echo"]) -> None:
        self._made = made
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._made.append(self)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class TlsPort:
    """A TLS port and who came through it."""

    def __init__(self, directory: Path, timeout_s: float) -> None:
        ca = trustme.CA()
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert("127.0.0.1").configure_cert(server)
        self.trusting = ssl.create_default_context()
        ca.configure_trust(self.trusting)
        self.made: list[Echo] = []
        self.is_open = True
        self.asked: list[tuple[str, int, int]] = []
        self.delay_s = 0.0
        self.handshakes = TlsHandshakes(
            lambda: server, lambda: Echo(self.made), self._admits, lambda: self.delay_s, timeout_s
        )
        self.port = 0

    def _admits(self, ip: str, pending: int, pending_of_it: int) -> bool:
        self.asked.append((ip, pending, pending_of_it))
        return self.is_open

    async def connect(self) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.trusting)

    async def half(self) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def until_pending(self, count: int) -> None:
        while len(self.handshakes) != count:
            await asyncio.sleep(0.005)

    async def talk(self) -> bytes:
        reader, writer = await self.connect()
        writer.write(b"hello")
        answer = await reader.readexactly(5)
        writer.transport.abort()
        return answer


def on_port(
    test: Callable[[TlsPort], Awaitable[None]], tmp_path: Path, timeout_s: float = 30.0
) -> None:
    async def main() -> None:
        tls_port = TlsPort(tmp_path, timeout_s)
        tls_port.port = await tls_port.handshakes.open("127.0.0.1", 0)
        try:
            async with asyncio.timeout(30):
                await test(tls_port)
        finally:
            await tls_port.handshakes.close()
            for echo in tls_port.made:
                echo.transport.abort()
            await asyncio.sleep(0)

    asyncio.run(main())


@run_with(on_port, fixtures=["tmp_path"])
async def test_completed_handshake_is_no_longer_pending(tls_port: TlsPort) -> None:
    assert await tls_port.talk() == b"hello"
    assert len(tls_port.handshakes) == 0
    assert tls_port.asked == [("127.0.0.1", 0, 0)]


@run_with(on_port, timeout_s=0.2, fixtures=["tmp_path"])
async def test_handshake_that_exceeds_its_timeout_is_ended(tls_port: TlsPort) -> None:
    reader, writer = await tls_port.half()
    assert await reader.read() == b""
    assert len(tls_port.handshakes) == 0
    assert not tls_port.made
    writer.transport.abort()


@run_with(on_port, fixtures=["tmp_path"])
async def test_connection_that_does_not_speak_tls_is_ended_at_once(tls_port: TlsPort) -> None:
    reader, writer = await tls_port.half()
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    with contextlib.suppress(ConnectionResetError):
        while await reader.read():
            pass
    writer.transport.abort()
    await tls_port.until_pending(0)
    assert await tls_port.talk() == b"hello"


@run_with(on_port, fixtures=["tmp_path"])
async def test_excess_handshakes_end_the_oldest(
    tls_port: TlsPort, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_handshakes, "HANDSHAKES_MAX", 3)

    halves = []
    for count in (1, 2, 3):
        halves.append(await tls_port.half())
        await tls_port.until_pending(count)
    assert await tls_port.talk() == b"hello"
    assert tls_port.handshakes.evicted == 1
    assert await halves[0][0].read() == b"", "the one that was there longest"
    await tls_port.until_pending(2)
    assert [asked[1:] for asked in tls_port.asked] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    for _, writer in halves:
        writer.transport.abort()


@run_with(on_port, fixtures=["tmp_path"])
async def test_connection_that_is_not_admitted_is_closed(tls_port: TlsPort) -> None:
    tls_port.is_open = False
    reader, writer = await tls_port.half()
    assert await reader.read() == b""
    writer.transport.abort()
    tls_port.is_open = True
    assert await tls_port.talk() == b"hello"


@run_with(on_port, fixtures=["tmp_path"])
async def test_handshake_waits_for_its_turn(tls_port: TlsPort) -> None:
    tls_port.delay_s = 0.2
    began = asyncio.get_running_loop().time()
    assert await tls_port.talk() == b"hello"
    assert asyncio.get_running_loop().time() - began >= 0.2


@run_with(on_port, fixtures=["tmp_path"])
async def test_full_backlog_is_accepted_one_by_one(tls_port: TlsPort) -> None:
    count = 50

    # The system takes them in; the loop, which is held up meanwhile, finds them all at once.
    waiting = [socket.create_connection(("127.0.0.1", tls_port.port)) for _ in range(count)]
    steps, before = [], 0
    while before < count:
        await asyncio.sleep(0)
        steps.append(len(tls_port.handshakes) - before)
        before += steps[-1]
    assert max(steps) == 1
    for sock in waiting:
        sock.close()
