"""Server-sent events: a response that stays open while events arrive and the client reads them.

A comment (`KEEP_ALIVE`) is sent after `IDLE_MS` without events, so that each side notices if the
other is gone. The stream ends when the client disconnects or the server stops.
"""

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.gateway.http.request_io import WaitingRequests

IDLE_MS = 15_000
KEEP_ALIVE = b": still here\n\n"


class EventStream(Response):
    """Response that sends chunks until they end or the client disconnects."""

    media_type = "text/event-stream"

    def __init__(self, chunks: AsyncIterator[bytes], waits: WaitingRequests) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._chunks = chunks
        self._waits = waits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        pump = loop.create_task(self._pump(send))
        self._waits.add(pump)
        gone = loop.create_task(_disconnect(receive))
        try:
            await asyncio.wait((pump, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            pump.cancel()
            ended = await asyncio.gather(pump, gone, return_exceptions=True)
        if not isinstance(ended[0], asyncio.CancelledError) and ended[0] is not None:
            raise ended[0]
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pump(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for chunk in self._chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                del chunk  # The next one may be long in coming.
        finally:
            await self._chunks.aclose()  # type: ignore[attr-defined]  # It is a generator.


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def event(name: str, number: str, value: object) -> bytes:
    # A raw JSON payload may contain line breaks between its tokens.
    data = msgspec.json.encode(value).replace(b"\r", b"").replace(b"\n", b"")
    head = f"id: {number}\n" if number else ""
    return f"{head}event: {name}\ndata: ".encode() + data + b"\n\n"
