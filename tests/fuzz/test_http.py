"""Whatever arrives on the HTTP port is answered or hung up on, and the next caller is served."""

import asyncio
import contextlib

from hypothesis import given
from hypothesis import strategies as st

from penstock.base.metrics import Catalogue
from penstock.gateway.app import HttpState
from penstock.gateway.server import HttpServer, start_http
from tests.run_with import in_new_loop, run_with

PIECES = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\n", b"POST /metrics HTTP/1.1\r\n", b"GET http://x/ HTTP/1.0\r\n",
        b"OPTIONS * HTTP/1.1\r\n", b"CONNECT x:1 HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"host: x\r\n", b"content-length: 5\r\n", b"content-length: 99999999999999999999\r\n",
        b"transfer-encoding: chunked\r\n", b"expect: 100-continue\r\n", b"connection: upgrade\r\n",
        b"upgrade: websocket\r\n", b"upgrade: h2c\r\n", b"\r\n", b"0\r\n\r\n", b"ffffffffff\r\n",
        b"hello", b" folded\r\n", b"\x00", b"\xff\xfe",
    ]
)  # fmt: skip


def state() -> HttpState:
    return HttpState("0", 1, "c", "k:1", Catalogue(), lambda: None, lambda: None)


async def talk(server: HttpServer, chunks: list[bytes]) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        for chunk in chunks:
            writer.write(chunk)
            await asyncio.sleep(0)
        writer.write_eof()
        return await reader.read()
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@given(st.lists(PIECES | st.binary(max_size=64), max_size=12))
@run_with(in_new_loop)
async def test_hostile_bytes_do_not_affect_the_next_request(*, chunks: list[bytes]) -> None:
    server = await start_http("127.0.0.1", 0, state())
    try:
        with contextlib.suppress(OSError):  # hung up on while still talking
            answer = await talk(server, chunks)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
            assert b" 500 " not in answer.partition(b"\r\n")[0]
        healthy = await talk(server, [b"GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n"])
        assert healthy.endswith(b"ok\n")
    finally:
        await server.stop()
