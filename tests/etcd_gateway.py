"""Fake etcd gateway: an HTTP server with responses set by the test.

For what a current etcd does not do: report an old version, fail at a given moment, send garbage.
"""

import asyncio
import json
from collections.abc import Callable
from types import TracebackType
from typing import Any

Answer = tuple[int, Any] | bytes
"""Status and JSON, or raw bytes."""
HEADER = {"revision": "7", "cluster_id": "1"}


class FakeEtcdGateway:
    """`answers` maps a path to a response, or to a function from the request body to one."""

    def __init__(self, version: str = "3.6.0") -> None:
        self.answers: dict[str, Answer | Callable[[Any], Answer]] = {
            "/version": (200, {"etcdserver": version, "etcdcluster": version}),
            "/v3/kv/range": (200, {"header": HEADER}),
            "/v3/kv/txn": (200, {"header": HEADER, "succeeded": True}),
        }
        self.asked: list[str] = []
        self.heads: list[str] = []

    async def __aenter__(self) -> "FakeEtcdGateway":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()

    def fail(self, path: str, code: int, message: str, *, times: int = 1) -> None:
        """Lets the next `times` requests for `path` fail, but not later ones."""
        after = self.answers[path]

        def answer(body: Any) -> Answer:
            nonlocal times
            times -= 1
            if times < 0:
                return after(body) if callable(after) else after
            return 503, {"code": code, "message": message}

        self.answers[path] = answer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                fields = {
                    name.lower(): value
                    for name, _, value in (line.partition(": ") for line in head.split("\r\n"))
                }
                body = await reader.readexactly(int(fields.get("content-length", 0)))
                path = head.split(" ")[1]
                self.asked.append(path)
                self.heads.append(head)
                answer = self.answers.get(path, (404, {}))
                if callable(answer):
                    answer = answer(json.loads(body or b"null"))
                writer.write(answer if isinstance(answer, bytes) else _render(*answer))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def _render(status: int, content: Any) -> bytes:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return b"HTTP/1.1 %d Status\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)
