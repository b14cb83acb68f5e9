"""Requests that offer a protocol upgrade are served as HTTP/1.1, over sockets."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from penstock.gateway import server as serving
from penstock.gateway.http import protocol as limits
from penstock.gateway.server import HttpServer
from tests.run_with import run_with
from tests.unit.gateway.test_server import connect, get, send, serve

H2C = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
WEBSOCKET = b"connection: upgrade\r\nupgrade: websocket\r\n"
BODY = b'{"payload": "GET /trap HTTP/1.1\r\nhost: h\r\n\r\n"}'
"""A parser that loses the body would treat its content as a request."""
LENGTH = b"content-length: %d\r\n" % len(BODY)
CHUNKED = b"transfer-encoding: chunked\r\n"
CHUNKS = b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"
NEXT = b"GET /next HTTP/1.1\r\nhost: h\r\n\r\n"


def serve_echo(
    scene: Callable[[HttpServer], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def echo(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = (await request.body()).decode()
        seen = {
            "asked": f"{request.method} {request.url.path}?{request.url.query}",
            "body": body,
            "headers": dict(request.headers),
        }
        await JSONResponse(seen)(scope, receive, send)

    monkeypatch.setattr(serving, "build_app", lambda state: echo)
    serve(scene)


def post(framing: bytes = LENGTH, offer: bytes = H2C) -> bytes:
    return b"POST /topics/t?a=b HTTP/1.1\r\nhost: h\r\n" + offer + framing + b"\r\n"


async def answer_of(reader: asyncio.StreamReader) -> dict[str, Any]:
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    answer: dict[str, Any] = json.loads(await reader.readexactly(length))
    return answer


@pytest.mark.parametrize("offer", [H2C, WEBSOCKET], ids=["h2c", "websocket"])
@pytest.mark.parametrize(
    ("framing", "body"), [(LENGTH, BODY), (CHUNKED, CHUNKS)], ids=["length", "chunked"]
)
@pytest.mark.parametrize("step", [0, 1, 7, 64])
@run_with(serve_echo, fixtures=["monkeypatch"])
async def test_body_of_an_upgrade_request_arrives(
    server: HttpServer, *, offer: bytes, framing: bytes, body: bytes, step: int
) -> None:
    raw = post(framing, offer) + body

    async with connect(server) as (reader, writer):
        for cut in range(0, len(raw), step or len(raw)):
            writer.write(raw[cut : cut + (step or len(raw))])
            await writer.drain()
            await asyncio.sleep(0)
        answer = await answer_of(reader)
        assert answer["asked"] == "POST /topics/t?a=b"
        assert answer["body"] == BODY.decode()
        assert answer["headers"]["host"] == "h"
        assert "upgrade" not in answer["headers"]
        writer.write(NEXT)
        answer = await answer_of(reader)
        assert (answer["asked"], answer["body"]) == ("GET /next?", "")


@run_with(serve_echo, fixtures=["monkeypatch"])
async def test_late_body_of_an_upgrade_request_arrives(server: HttpServer) -> None:
    async with connect(server) as (reader, writer):
        writer.write(post(LENGTH + b"expect: 100-continue\r\n"))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(BODY[:9])
        await asyncio.sleep(0.01)
        writer.write(BODY[9:])
        assert (await answer_of(reader))["body"] == BODY.decode()


@run_with(serve_echo, fixtures=["monkeypatch"])
async def test_requests_pipelined_after_an_upgrade_are_answered_in_order(
    server: HttpServer,
) -> None:
    async with connect(server) as (reader, writer):
        writer.write((post() + BODY + NEXT) * 3 + post(CHUNKED, WEBSOCKET) + CHUNKS + NEXT)
        for _ in range(4):
            assert (await answer_of(reader))["body"] == BODY.decode()
            answer = await answer_of(reader)
            assert (answer["asked"], answer["body"]) == ("GET /next?", "")


@pytest.mark.parametrize("offer", ["upgrade: h2c", "upgrade: websocket"])
@run_with(serve)
async def test_upgrade_request_without_body_is_answered_normally(
    server: HttpServer, *, offer: str
) -> None:
    for path in ("/healthz", "/nothing"):
        plain = await get(server, path)
        assert await get(server, path, "connection: upgrade", offer) == plain


@pytest.mark.parametrize(
    "framing",
    [
        b"content-length: 1\r\ntransfer-encoding: chunked\r\n",
        b"content-length: -5\r\n",
        b"x: " + b"y" * limits.HEAD_BYTES_MAX + b"\r\n",
        b"x: y\r\n" * (limits.HEADERS_MAX - 2),
    ],
    ids=["smuggle", "length", "header", "headers"],
)
@run_with(serve)
async def test_upgrade_requests_are_subject_to_limits(
    server: HttpServer, *, framing: bytes
) -> None:
    answer = await send(server, post(framing))
    assert answer.startswith(b"HTTP/1.1 400"), answer
    assert (await get(server, "/healthz"))[0] == 200


@run_with(serve_echo, fixtures=["monkeypatch"])
async def test_head_after_an_upgrade_request_has_a_deadline(
    server: HttpServer, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEAD_TIMEOUT_S", 0.05)

    async with connect(server) as (reader, writer):
        writer.write(post() + BODY + b"GET /next HT")
        assert (await answer_of(reader))["body"] == BODY.decode()
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
