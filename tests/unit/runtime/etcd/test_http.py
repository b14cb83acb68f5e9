"""One connection: what it makes of bytes, however they are cut, and what it does not take."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from penstock.base.ports import WatchLost
from penstock.runtime.etcd import http
from penstock.runtime.etcd.config import EtcdConfig
from penstock.runtime.etcd.http import AnswerTooLarge, EtcdConnection, EtcdEndpoint, connect
from penstock.runtime.etcd.store import EtcdStore
from tests.etcd_gateway import FakeEtcdGateway
from tests.run_with import run_with

STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop.run(asyncio.wait_for(test(), 60))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@asynccontextmanager
async def served(serve: Serve) -> AsyncIterator[EtcdConnection]:
    """A connection to a server that does this with each of its own."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = await connect(EtcdEndpoint("127.0.0.1", port, is_tls=False), None)
    try:
        yield connection
    finally:
        connection.close()
        server.close()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 10_000])
@run_with(run)
async def test_lines_are_the_same_however_they_arrive(*, size: int) -> None:
    lines = [b'{"a":1}', b'{"b":"' + b"x" * 300 + b'"}', b"{}"]
    text = b"\n".join(lines) + b"\n"
    sent = STREAM + b"".join(chunk(text[i : i + 11]) for i in range(0, len(text), 11))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for start in range(0, len(sent), size):
            writer.write(sent[start : start + size])
            await writer.drain()
        writer.write(chunk(b""))
        await reader.read()

    async with served(serve) as connection:
        assert await connection.start_stream("/v3/watch", b"{}", "") == 200
        assert [await connection.next_line() for _ in lines] == lines
        assert await connection.next_line() is None, "and then the stream is over"


@run_with(run)
async def test_unconsumed_stream_pauses_and_resumes() -> None:
    line = b"x" * 999 + b"\n"
    count = 20_000
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(STREAM)
        for _ in range(count):
            # Cut inside a line, so that what waits is never just whole lines.
            writer.write(chunk(line[:500]) + chunk(line[500:]))
            await writer.drain()
            sent += 1
        await reader.read()

    async with served(serve) as connection:
        await connection.start_stream("/v3/watch", b"{}", "")
        before = -1
        while sent != before:  # Until the server cannot send any more.
            before = sent
            await asyncio.sleep(0.2)
        assert sent < count
        for _ in range(count):
            assert await connection.next_line() == line[:-1]


@run_with(run)
async def test_answer_without_end_is_given_up() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        piece = chunk(b"x" * 1_000_000)
        while True:
            writer.write(piece)
            await writer.drain()

    async with served(serve) as connection:
        with pytest.raises(AnswerTooLarge):
            await connection.ask("GET", "/", b"", "")
        assert connection.is_closed


@run_with(run)
async def test_watch_answer_too_large_to_take_loses_the_watch() -> None:
    """Reading the range again, in pages, gets there."""
    async with FakeEtcdGateway() as etcd:
        store = await EtcdStore.open(EtcdConfig((etcd.url,)))
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"
        etcd.answers["/v3/watch"] = head + b"x" * (http.ANSWER_BYTES_MAX + 1)
        with pytest.raises(WatchLost):
            async for _ in store.watch("/", 1):
                pass
        await store.close()


@run_with(run)
async def test_lost_connection_fails_current_and_later_requests() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")

    async with served(serve) as connection:
        for _ in range(2):
            with pytest.raises(ConnectionError, match="closed the connection"):
                await connection.ask("GET", "/", b"", "")
