"""Console of a node on simulated ports, called by ASGI in virtual time."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

from penstock.broker.api.route_row import Operation, ResourceType
from penstock.gateway.app import build_app
from penstock.gateway.console.console import About, Console
from penstock.gateway.console.mount import ConsoleMount
from penstock.gateway.http.authentication import Users
from penstock.gateway.http.body_limit import BodyLimit
from simulation.cluster import SimCluster
from simulation.loop import SimLoop
from tests.unit.coordinator.queueing import Node
from tests.unit.gateway.http.served_node import OVERRIDES
from tests.unit.gateway.http.web import Answer, Web

API = "/console/api"
CONSOLE_HEADER = {"x_penstock_console": "1"}


class ConsoleClient(Web):
    """Client of the console's routes."""

    def __init__(self, node: Node, users: Users | None = None) -> None:
        super().__init__(node)
        self.console = Console(self.gateway, About("1.2.3", "abc", "127.0.0.1:9092"), users)
        site = ConsoleMount(self.console)
        self.app = site.wrap(BodyLimit(build_app(replace(self.state, console=site)), self.gateway))

    async def own(self, path: str, **query: Any) -> Any:
        answer = await self.get(API + path, **query)
        assert answer.status == 200, answer
        return answer.json

    async def change(self, path: str, value: Any, method: str = "POST") -> Answer:
        return await self.ask(method, API + path, value, **CONSOLE_HEADER)


class Rights:
    """Authorizer that allows everything except what a test denies."""

    is_on = True

    def __init__(self, *denied: str) -> None:
        self._denied = denied

    def allows(
        self, principal: str, operation: Operation, kind: ResourceType, name: str, host: str = "*"
    ) -> bool:
        return name not in self._denied or principal.startswith("User:__")

    def allows_some(
        self, principal: str, operation: Operation, kind: ResourceType, host: str = "*"
    ) -> bool:
        return True


async def events(web: ConsoleClient, path: str, until: str) -> list[Any]:
    """Returns the data of a stream's events, up to the first that contains a text."""
    request = web.begin("GET", API + path)
    while until.encode() not in request.answer.body:
        request.news.clear()
        await request.news.wait()
    await request.disconnect()
    lines = request.answer.body.decode().splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


def on_console(
    test: Callable[[ConsoleClient], Awaitable[None]],
    *,
    users: Users | None = None,
    configs: dict[str, str] | None = None,
) -> None:
    async def main() -> None:
        nodes = SimCluster(loop, 1, overrides=OVERRIDES | (configs or {}))
        await nodes.start()
        (node,) = nodes.nodes()
        await test(ConsoleClient(cast("Node", node), users))
        nodes.close()

    loop = SimLoop(1, time_max=3_600)
    loop.run(main())
