"""Security headers on all responses: pages, data, errors, and refusals below the routes."""

import base64
import hashlib
import logging
import re

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from penstock.gateway import server as serving
from penstock.gateway.http import protocol as limits
from penstock.gateway.http.security_headers import headers_of
from penstock.gateway.server import HttpServer
from tests.run_with import run_with
from tests.unit.gateway.test_server import send, serve

POLICY = b"content-security-policy"
WANTED = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    POLICY: b"default-src 'none'; frame-ancestors 'none'",
}


def headers_in(answer: bytes) -> list[tuple[bytes, bytes]]:
    head = answer.partition(b"\r\n\r\n")[0]
    rows = [line.split(b": ", 1) for line in head.split(b"\r\n")[1:]]
    return [(name.lower(), value) for name, value in rows]


def require(answer: bytes, status: int) -> dict[bytes, bytes]:
    assert answer.startswith(b"HTTP/1.1 %d" % status), answer
    rows = headers_in(answer)
    assert len(rows) == len(dict(rows)), rows
    assert WANTED.items() <= dict(rows).items(), rows
    return dict(rows)


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET / HTTP/1.1\r\n", 200),
        (b"GET /healthz HTTP/1.1\r\n", 200),
        (b"GET /metrics HTTP/1.1\r\n", 200),
        (b"HEAD /version HTTP/1.1\r\n", 200),
        (b"GET / HTTP/1.1\r\naccept: text/html\r\n", 307),
        (b"GET /nothing HTTP/1.1\r\n", 404),
        (b"DELETE /healthz HTTP/1.1\r\n", 405),
        (b"POST / HTTP/1.1\r\ncontent-length: 99999999\r\n", 413),
        (b"GET / HTTP/9.9\r\n", 400),
        (b"GET /%ff HTTP/1.1\r\n", 400),
        (b"CONNECT other:443 HTTP/1.1\r\n", 400),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * limits.HEAD_BYTES_MAX + b"\r\n", 400),
        (b"\x00\x01\x02\x03" * 8, 400),
    ],
)
@run_with(serve)
async def test_every_response_has_each_header_once(
    server: HttpServer, *, raw: bytes, status: int
) -> None:
    ending = b"" if raw[0] == 0 else b"host: h\r\nconnection: close\r\n\r\n"
    rows = require(await send(server, raw + ending), status)
    assert b"strict-transport-security" not in rows


def test_response_keeps_its_own_header_and_failures_have_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/fails":
            raise ValueError("on purpose")
        headers = {"content-security-policy": "script-src 'self'", "X-Frame-Options": "DENY"}
        await PlainTextResponse("own", headers=headers)(scope, receive, send)

    monkeypatch.setattr(serving, "build_app", lambda state: app)
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "disabled", True)

    async def scene(server: HttpServer) -> None:
        raw = b"GET /%b HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"
        rows = headers_in(await send(server, raw % b"own"))
        assert len(rows) == len(dict(rows)), rows
        assert dict(rows) == dict(rows) | WANTED | {POLICY: b"script-src 'self'"}
        require(await send(server, raw % b"fails"), 500)

    serve(scene)


@run_with(serve)
async def test_docs_page_policy_allows_only_its_style(server: HttpServer) -> None:
    answer = await send(server, b"GET /docs HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
    (policy,) = [value for name, value in headers_in(answer) if name == POLICY]
    (style,) = re.findall(rb"<style>(.*?)</style>", answer, re.DOTALL)
    assert b"'sha256-%b'" % base64.b64encode(hashlib.sha256(style).digest()) in policy
    assert b"frame-ancestors 'none'" in policy
    assert b"default-src 'none'" in policy
    assert b"unsafe" not in policy
    assert b"style=" not in answer


def test_hsts_header_is_sent_only_over_tls() -> None:
    hsts = b"strict-transport-security"
    assert hsts not in dict(headers_of())
    assert dict(headers_of(60))[hsts] == b"max-age=60"
    assert dict(headers_of(0))[hsts] == b"max-age=0"
