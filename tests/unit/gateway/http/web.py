"""HTTP endpoint of a node on simulated ports, called by ASGI in virtual time."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from starlette.types import ASGIApp, Message

from penstock.base.metrics import Catalogue
from penstock.gateway.app import HttpState, build_app
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.http.body_limit import BodyLimit
from penstock.gateway.http.problems import PRINCIPAL
from tests.unit.coordinator.queueing import CONFIGS, Node, on_node

AUTO = CONFIGS | {"auto.create.topics.enable": "true", "num.partitions": "1"}


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Error code of a problem."""
        assert self.headers["content-type"] == "application/problem+json", self
        assert self.json["status"] == self.status
        assert self.json["detail"], "the problem has no detail"
        return str(self.json["code"])


class PendingRequest:
    """Running request; it ends with its response, or when the client disconnects."""

    def __init__(self, web: "Web", method: str, path: str, body: bytes, headers: Any) -> None:
        who = {} if web.who is None else {PRINCIPAL: web.who}
        route, _, query = path.partition("?")
        self._scope = {
            "type": "http",
            "method": method,
            "path": route,
            "raw_path": quote(route).encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "http_version": "1.1",
            "scheme": "http",
            "server": ("test", 80),
            "client": (web.host, 50_000),
            **who,
            "asgi": {"version": "3.0", "spec_version": "2.3"},
        }
        self._body: bytes | None = body
        self._gone = asyncio.Event()
        self.answer = Answer()
        self.news = asyncio.Event()
        self._task = asyncio.ensure_future(web.app(self._scope, self._receive, self._send))

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.answer.status = message["status"]
            self.answer.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        else:
            self.answer.body += message.get("body", b"")
        self.news.set()

    async def ended(self) -> Answer:
        await self._task
        return self.answer

    async def disconnect(self) -> None:
        self._gone.set()
        await asyncio.gather(self._task, return_exceptions=True)


class Web:
    """Client of the endpoint."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.host = "127.0.0.1"
        self.who: str | None = None
        """Authenticated principal."""
        self.gateway = Gateway(node.ctx)
        self.state = HttpState(
            version="1.2.3",
            node_id=1,
            cluster_id="abc",
            kafka_address="127.0.0.1:9092",
            catalogue=Catalogue(),
            health_problem=lambda: None,
            readiness_problem=lambda: None,
            gateway=self.gateway,
        )
        self.limit = BodyLimit(build_app(self.state), self.gateway)
        self.app: ASGIApp = self.limit

    def begin(self, method: str, path: str, value: Any = None, **headers: str) -> PendingRequest:
        body = b"" if value is None else value if isinstance(value, bytes) else _json(value)
        names = {name.replace("_", "-"): text for name, text in headers.items()}
        return PendingRequest(self, method, path, body, names)

    async def ask(self, method: str, path: str, value: Any = None, **headers: str) -> Answer:
        return await self.begin(method, path, value, **headers).ended()

    async def get(self, path: str, **query: Any) -> Answer:
        return await self.ask("GET", f"{path}?{urlencode(query)}" if query else path)

    async def post(self, path: str, value: Any) -> Answer:
        return await self.ask("POST", path, value)

    async def publish(self, *payloads: Any, topic: str = "t") -> None:
        messages = [{"payload": payload} for payload in payloads]
        answer = await self.post(f"/topics/{topic}/messages", {"messages": messages})
        assert answer.status == 200, answer

    async def poll(self, topic: str = "t", group: str = "g", **query: Any) -> list[dict[str, Any]]:
        answer = await self.get(f"/topics/{topic}/poll", group=group, **query)
        assert answer.status == 200, answer
        messages: list[dict[str, Any]] = answer.json["messages"]
        return messages


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def on_web(test: Callable[[Web], Awaitable[None]], configs: dict[str, str] | None = None) -> None:
    """Runs a test on a node that creates topics automatically."""

    async def main(node: Node) -> None:
        await test(Web(node))

    on_node(main, configs=AUTO | (configs or {}))
