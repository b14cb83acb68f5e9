"""A TCP proxy in the test's own event loop that loses data on demand.

Stands between a client under test and a real server on this machine. Switches, at any time:
`passes_requests` and `passes_answers` (False: bytes are swallowed, connections stay), `accepts`
(False: a new connection is closed at once), `cut()` (every connection is reset).
"""

import asyncio
from types import TracebackType
from typing import cast

CHUNK_BYTES = 64 * 1024


class TcpProxy:
    def __init__(self, target_port: int) -> None:
        self.passes_requests = True
        self.passes_answers = True
        self.accepts = True
        self.accepted = 0
        self.open = 0
        self.open_max = 0
        self.answered_bytes = 0
        self.swallowed = b""
        """Requests that were not passed on."""
        self._target_port = target_port
        self._writers: dict[asyncio.StreamWriter, None] = {}
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "TcpProxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        while self.open:
            await asyncio.sleep(0.001)

    def cut(self) -> None:
        for writer in list(self._writers):
            cast("asyncio.Transport", writer.transport).abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.open += 1
        self.open_max = max(self.open_max, self.open)
        try:
            if self.accepts:
                await self._join(reader, writer)
        except ConnectionError:
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", self._target_port)
        both = (writer, there[1])
        self._writers.update(dict.fromkeys(both))
        try:
            requests = asyncio.create_task(self._pump(reader, there[1], is_request=True))
            answers = asyncio.create_task(self._pump(there[0], writer, is_request=False))
            done, rest = await asyncio.wait(
                (requests, answers), return_when=asyncio.FIRST_COMPLETED
            )
            for task in rest:
                task.cancel()
            await asyncio.gather(*done, *rest, return_exceptions=True)
        finally:
            for one in both:
                del self._writers[one]
                cast("asyncio.Transport", one.transport).abort()

    async def _pump(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, is_request: bool
    ) -> None:
        while data := await source.read(CHUNK_BYTES):
            if self.passes_requests if is_request else self.passes_answers:
                target.write(data)
                await target.drain()
                self.answered_bytes += 0 if is_request else len(data)
            elif is_request:
                self.swallowed += data
