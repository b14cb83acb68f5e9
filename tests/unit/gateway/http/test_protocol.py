"""Connection of the HTTP port: upgrades, invalid text, disconnects."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from penstock.gateway.http.connection_limits import ConnectionLimiter
from penstock.gateway.http.protocol import BoundedProtocol
from tests.run_with import run_with

H2C = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
HEAD = b"POST /a%20b?c=d HTTP/1.1\r\nhost: x\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Responds with the parsed request and its body."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    names = b",".join(name for name, _ in scope["headers"])
    parts = (scope["method"], scope["path"], scope["query_string"].decode())
    answer = " ".join(parts).encode() + b"|" + names + b"|" + body + b"."
    head = [(b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": answer})


def serve(scene: Callable[[int], Awaitable[None]], app: ASGIApp) -> None:
    async def main() -> None:
        config = Config(
            app, http=BoundedProtocol, lifespan="off", log_config=None, access_log=False
        )
        config.load()
        state, admission = ServerState(), ConnectionLimiter(None)

        def connect() -> BoundedProtocol:
            return BoundedProtocol(config, state, asyncio.Event(), admission, is_admitted=True)

        server = await asyncio.get_running_loop().create_server(connect, "127.0.0.1", 0)
        try:
            await scene(server.sockets[0].getsockname()[1])
            while state.tasks or state.connections:
                await asyncio.sleep(0.001)
        finally:
            server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


async def send(port: int, *pieces: bytes, answers: int = 1) -> bytes:
    """Sends the pieces; returns up to `answers` responses of `echo`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(0)
    said = b""
    while said.count(b"|") < 2 * answers or not said.endswith(b"."):
        more = await reader.read(1 << 16)
        if not more:
            break
        said += more
    writer.close()
    return said


@pytest.mark.parametrize(
    ("more", "body"),
    [
        (b"content-length: 5\r\n", b"hello"),
        (b"transfer-encoding: chunked\r\n", b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"),
        (b"content-length: 5\r\nexpect: 100-continue\r\n", b"hello"),
    ],
    ids=["length", "chunked", "expect"],
)
@pytest.mark.parametrize("step", [1, 7, 10_000])
@run_with(serve, echo)
async def test_upgrade_request_keeps_its_body(
    port: int, *, more: bytes, body: bytes, step: int
) -> None:
    raw = HEAD + H2C + more + b"\r\n" + body
    said = await send(port, *(raw[at : at + step] for at in range(0, len(raw), step)))
    assert b"HTTP/1.1 200" in said
    assert b"POST /a b c=d|" in said
    assert said.endswith(b"|hello.")
    assert b"upgrade" not in said
    assert b"http2-settings" not in said


@run_with(serve, echo)
async def test_requests_pipelined_after_an_upgrade_are_served(port: int) -> None:
    one = HEAD + H2C + b"content-length: 5\r\n\r\nhello"
    other = b"GET / HTTP/1.1\r\nhost: x\r\n" + H2C + b"\r\n"
    said = await send(port, one + other + one, answers=3)
    assert said.count(b"HTTP/1.1 200") == 3
    assert said.count(b"|hello.") == 2


@pytest.mark.parametrize("target", [b"/%ff", b"/x?group=%ff", b"/x?%c3=1", b"/%ed%a0%80"])
@run_with(serve, echo)
async def test_target_that_is_not_utf8_gets_400_before_routing(port: int, *, target: bytes) -> None:
    said = await send(port, b"GET " + target + b" HTTP/1.1\r\nhost: x\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 400")
    assert b"UTF-8" in said
    assert (await send(port, HEAD + b"content-length: 0\r\n\r\n")).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("is_streaming", [False, True])
def test_disconnect_is_not_logged(caplog: pytest.LogCaptureFixture, is_streaming: bool) -> None:
    began = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        began.set()
        await asyncio.sleep(0.02)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(100 if is_streaming else 1):
            await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": b"x" * 1000, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def scene(port: int) -> None:
        for count in (1, 2, 5):
            began.clear()
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * count)
            await began.wait()
            writer.transport.abort()

    with caplog.at_level(logging.INFO):
        serve(scene, slow)
    assert [one.getMessage() for one in caplog.records] == []


@pytest.mark.parametrize("count", [1, 2, 5])
def test_running_request_is_notified_of_the_disconnect(count: int) -> None:
    began, told = asyncio.Event(), asyncio.Event()

    async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
        began.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        told.set()

    async def scene(port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * count)
        await began.wait()
        writer.transport.abort()
        async with asyncio.timeout(60):
            await told.wait()

    serve(scene, waiting)
