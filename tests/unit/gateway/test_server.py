"""HTTP port over real sockets on loopback: routes, limits, start and stop."""

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from penstock.base.metrics import Catalogue
from penstock.gateway import server as serving
from penstock.gateway.app import PAGES, HttpState
from penstock.gateway.http import connection_limits
from penstock.gateway.http import protocol as limits
from penstock.gateway.http.body_limit import BODY_BYTES_MAX
from penstock.gateway.server import HttpServer, start_http
from tests.run_with import in_new_loop, run_with


@dataclass
class Problems:
    """Health and readiness of a fake node."""

    health: str | None = None
    readiness: str | None = None
    catalogue: Catalogue = field(default_factory=Catalogue)

    def state(self) -> HttpState:
        return HttpState(
            version="1.2.3",
            node_id=4,
            cluster_id="abc",
            kafka_address="127.0.0.1:9092",
            catalogue=self.catalogue,
            health_problem=lambda: self.health,
            readiness_problem=lambda: self.readiness,
        )


def serve(scene: Callable[[HttpServer], Awaitable[None]], problems: Problems | None = None) -> None:
    async def run() -> None:
        server = await start_http("127.0.0.1", 0, (problems or Problems()).state())
        try:
            await scene(server)
        finally:
            await server.stop()

    asyncio.run(run())


@contextlib.asynccontextmanager
async def connect(
    server: HttpServer,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def send(server: HttpServer, raw: bytes) -> bytes:
    """Sends bytes; returns all that the server sends until it closes."""
    async with connect(server) as (reader, writer):
        writer.write(raw)
        return await reader.read()


async def get(server: HttpServer, path: str, *headers: str) -> tuple[int, str, bytes]:
    """Returns status, lower-cased head and body."""
    lines = [f"GET {path} HTTP/1.1", "host: test", "connection: close", *headers, "", ""]
    head, _, body = (await send(server, "\r\n".join(lines).encode())).partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode().lower(), body


@run_with(serve)
async def test_port_zero_reports_the_real_port(server: HttpServer) -> None:
    assert server.port > 0
    assert server.url == f"http://127.0.0.1:{server.port}"


@run_with(serve)
async def test_landing_page_links_exist(server: HttpServer) -> None:
    status, _, body = await get(server, "/")
    landing = json.loads(body)
    assert status == 200
    assert landing["kafka"] == "127.0.0.1:9092"
    assert landing["links"] == PAGES
    for path in landing["links"]:
        assert (await get(server, path))[0] == 200


@run_with(serve)
async def test_version_names_node_and_cluster(server: HttpServer) -> None:
    _, _, body = await get(server, "/version")
    assert json.loads(body) == {
        "version": "1.2.3",
        "node_id": 4,
        "cluster_id": "abc",
        "kafka": "127.0.0.1:9092",
    }


@run_with(serve, Problems(readiness="recovering"))
async def test_node_that_is_not_ready_is_still_healthy(server: HttpServer) -> None:
    assert (await get(server, "/healthz"))[0] == 200
    status, _, body = await get(server, "/readyz")
    assert (status, body) == (503, b"recovering\n")


@run_with(serve, Problems(health="the disk failed"))
async def test_unhealthy_node_is_not_ready(server: HttpServer) -> None:
    assert (await get(server, "/healthz"))[0] == 503
    status, _, body = await get(server, "/readyz")
    assert (status, body) == (503, b"the disk failed\n")


def serve_metric(scene: Callable[[HttpServer], Awaitable[None]]) -> None:
    problems = Problems()
    problems.catalogue.add("penstock_up", "gauge", "Up.").counter().value = 1
    serve(scene, problems)


@run_with(serve_metric)
async def test_metrics_have_the_requested_format(server: HttpServer) -> None:
    _, head, body = await get(server, "/metrics")
    assert "text/plain; version=0.0.4" in head
    assert b"penstock_up 1\n" in body
    _, head, body = await get(server, "/metrics", "accept: application/openmetrics-text")
    assert "application/openmetrics-text; version=1.0.0" in head
    assert body.endswith(b"# EOF\n")


@run_with(serve)
async def test_unknown_paths_and_methods_are_refused(server: HttpServer) -> None:
    assert (await get(server, "/nothing"))[0] == 404
    answer = await send(server, b"DELETE /healthz HTTP/1.1\r\nconnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 405")


@run_with(serve)
async def test_taken_port_is_an_os_error(server: HttpServer) -> None:
    with pytest.raises(OSError, match=str(server.port)):
        await start_http("127.0.0.1", server.port, Problems().state())


@run_with(serve)
async def test_server_does_not_change_signal_handlers(server: HttpServer) -> None:
    before = signal.getsignal(signal.SIGTERM)

    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x01\x02\x03" * 8,
        b"\x00\x00\x00\x10\x00\x12\x00\x04" + bytes(12),
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\n\r\n",
        b"CONNECT other:443 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\ncontent-length: -5\r\n\r\n",
        b"GET / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * (limits.HEADERS_MAX + 1) + b"\r\n",
        b"GET / HTTP/1.1\r\nx: " + b"y" * limits.HEAD_BYTES_MAX + b"\r\n\r\n",
        b"GET /" + b"y" * limits.HEAD_BYTES_MAX + b" HTTP/1.1\r\n\r\n",
    ],
    ids=[
        "binary", "kafka", "version", "path", "connect", "length", "smuggle", "headers", "header",
        "url",
    ],
)  # fmt: skip
@run_with(serve)
async def test_malformed_or_oversized_request_gets_400_and_is_closed(
    server: HttpServer, *, raw: bytes
) -> None:
    assert (await send(server, raw)).startswith(b"HTTP/1.1 400")
    assert (await get(server, "/healthz"))[0] == 200


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\nx: ", b"GET /", b"\r\n"])
@run_with(serve)
async def test_endless_head_is_refused(server: HttpServer, *, start: bytes) -> None:
    filler = b"\r\n" if start == b"\r\n" else b"yy"
    async with connect(server) as (reader, writer):
        writer.write(start)
        # In small pieces, so that no single read holds it all.
        for _ in range(limits.HEAD_BYTES_MAX // 1024 + 1):
            writer.write(filler * 512)
            await writer.drain()
            await asyncio.sleep(0)
        assert (await reader.readline()).startswith(b"HTTP/1.1 400")


@run_with(serve)
async def test_slow_head_loses_its_connection(
    server: HttpServer, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEAD_TIMEOUT_S", 0.05)

    async with connect(server) as (reader, writer):
        writer.write(b"GET / HT")
        assert await lost(reader)


async def lost(reader: asyncio.StreamReader) -> bool:
    """Waits for the end; True if it came without a response."""
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


@run_with(serve)
async def test_too_slow_body_loses_its_connection(
    server: HttpServer, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BODY_TIMEOUT_S", 0.1)

    async def trickle(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"x")
            await asyncio.sleep(0.01)

    monkeypatch.setattr(limits, "DRAIN_TIMEOUT_S", 3600.0)

    async with connect(server) as (reader, writer):
        writer.write(b"POST /none HTTP/1.1\r\ncontent-length: 1000\r\n\r\n")
        trickling = asyncio.ensure_future(trickle(writer))
        assert await reader.readuntil(b"\r\n") == b"HTTP/1.1 404 Not Found\r\n"
        with contextlib.suppress(ConnectionResetError):
            while await reader.read(1000):
                pass
        trickling.cancel()


@run_with(serve)
async def test_slow_but_steady_body_is_accepted(
    server: HttpServer, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BODY_TIMEOUT_S", 0.1)
    monkeypatch.setattr(limits, "BODY_BYTES_PER_S", 1 << 10)
    monkeypatch.setattr(limits, "DRAIN_TIMEOUT_S", 3600.0)

    async with connect(server) as (reader, writer):
        writer.write(b"POST /none HTTP/1.1\r\ncontent-length: 3000\r\n\r\n")
        for _ in range(3):
            writer.write(bytes(1000))
            await asyncio.sleep(0.2)
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"ok\n")


@run_with(serve)
async def test_body_over_the_limit_is_refused_before_reading(server: HttpServer) -> None:
    length = BODY_BYTES_MAX + 1
    raw = f"POST / HTTP/1.1\r\ncontent-length: {length}\r\n\r\n".encode()
    assert (await send(server, raw)).startswith(b"HTTP/1.1 413")


@run_with(serve)
async def test_unread_body_ends_the_connection(server: HttpServer) -> None:
    raw = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n"
    assert (await send(server, raw)).startswith(b"HTTP/1.1 405")


@run_with(serve)
async def test_pipelined_requests_on_one_connection_are_all_answered(server: HttpServer) -> None:
    raw = b"GET /healthz HTTP/1.1\r\n\r\n" * 3
    raw += b"GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n"
    assert (await send(server, raw)).count(b"HTTP/1.1 200") == 4


@run_with(serve)
async def test_connections_over_the_limit_are_dropped(
    server: HttpServer, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "CONNECTIONS_MAX", 1)
    monkeypatch.setattr(limits, "HEAD_TIMEOUT_S", 3600.0)

    async with connect(server) as (first_reader, first_writer):
        first_writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        await first_reader.readuntil(b"ok\n")
        async with connect(server) as (reader, _):
            assert await lost(reader)
        first_writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        await first_reader.readuntil(b"ok\n")


@run_with(in_new_loop)
async def test_stop_closes_idle_connections_and_the_port(
    *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "STOP_TIMEOUT_S", 3600.0)

    server = await start_http("127.0.0.1", 0, Problems().state())
    async with connect(server) as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"ok\n")
        await server.stop()
        assert await reader.read() == b""
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", server.port)


@run_with(in_new_loop)
async def test_stop_lets_a_running_request_finish(*, monkeypatch: pytest.MonkeyPatch) -> None:
    started, release = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        started.set()
        await release.wait()
        await PlainTextResponse("late")(scope, receive, send)

    monkeypatch.setattr(serving, "build_app", lambda state: slow)
    server = await start_http("127.0.0.1", 0, Problems().state())
    async with connect(server) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await started.wait()
        stopping = asyncio.ensure_future(server.stop())
        await asyncio.sleep(0)
        release.set()
        assert (await reader.read()).endswith(b"late")
        await stopping


@run_with(in_new_loop)
async def test_stop_does_not_wait_forever_for_a_stuck_request(
    *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "STOP_TIMEOUT_S", 0.05)

    started = asyncio.Event()

    async def stuck(scope: Scope, receive: Receive, send: Send) -> None:
        started.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(serving, "build_app", lambda state: stuck)
    server = await start_http("127.0.0.1", 0, Problems().state())
    async with connect(server) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await started.wait()
        await server.stop()
        assert not (await reader.read()).startswith(b"HTTP/1.1 200")


class Wire:
    """Transport that records writes."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_over = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_over = True


@run_with(in_new_loop)
async def test_response_head_and_body_are_written_together() -> None:
    wire = Wire()
    joining = limits.JoiningTransport(wire, asyncio.get_running_loop())  # type: ignore[arg-type]
    joining.write(b"HTTP/1.1 200 OK\r\n\r\n")
    joining.write(b"body")
    joining.write(b"more")
    assert wire.writes == [b"HTTP/1.1 200 OK\r\n\r\nbody", b"more"]
    joining.write(b"HTTP/1.1 204 No Content\r\n\r\n")
    await asyncio.sleep(0)
    assert wire.writes[2:] == [b"HTTP/1.1 204 No Content\r\n\r\n"]
    joining.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    joining.close()
    assert wire.writes[3:] == [b"HTTP/1.1 400 Bad Request\r\n\r\n"]
    assert joining.is_closing()
    await asyncio.sleep(0)
    assert len(wire.writes) == 4
