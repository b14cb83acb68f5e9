"""SQS and SNS endpoint on one simulated node, called as by an SDK, without sockets."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, cast
from urllib.parse import urlencode
from xml.etree import ElementTree

from starlette.applications import Starlette
from starlette.requests import Request

from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.move_tasks import MoveTasks
from penstock.gateway.http.problems import PRINCIPAL
from penstock.gateway.http.request_io import WaitingRequests
from penstock.gateway.sqs.endpoint import AwsEndpoint
from simulation.cluster import SimCluster
from simulation.loop import SimLoop
from tests.unit.coordinator.queueing import CONFIGS, Node, on_node
from tests.unit.gateway.http.served_node import OVERRIDES

Table = dict[str, Any]


class Failed(Exception):
    """Error response: name, older code, status."""

    def __init__(self, name: str, code: str, message: str, status: int) -> None:
        super().__init__(f"{name} ({code}, {status}): {message}")
        self.name = name
        self.code = code
        self.message = message
        self.status = status


class Sdk:
    """Calls actions by name: `await sdk("SendMessage", QueueUrl=..., MessageBody=...)`."""

    def __init__(self, node: Node, moves: MoveTasks) -> None:
        self.node = node
        self.moves = moves
        self.entry = AwsEndpoint(moves.gateway, moves)
        self.host = "127.0.0.1"
        self.who: str | None = None
        """Authenticated principal."""
        self.headers: dict[str, str] = {"host": "broker:8080"}
        self.app = Starlette()
        self.app.state.waits = WaitingRequests()

    async def __call__(self, action: str, **values: Any) -> Table:
        status, headers, body = await self.post(
            json.dumps(values).encode(), {"x-amz-target": f"AmazonSQS.{action}"}
        )
        answer: Table = json.loads(body)
        if status != 200:
            code, _, kind = headers["x-amzn-query-error"].partition(";")
            assert kind == ("Sender" if status < 500 else "Receiver")
            namespace, _, name = answer["__type"].partition("#")
            # Common errors of AWS services have another name here: see the endpoint's tests.
            is_common = namespace == "com.amazon.coral.service"
            raise Failed(code if is_common else name, code, answer["message"], status)
        return answer

    async def form(self, action: str, version: str, **values: str) -> ElementTree.Element:
        """Calls an action by the query protocol; two underscores in names stand for a dot."""
        fields = {name.replace("__", "."): value for name, value in values.items()}
        fields |= {"Action": action, "Version": version}
        status, _, body = await self.post(urlencode(fields).encode(), {})
        text = body.decode()
        start, end = text.index(" xmlns="), text.index(">", text.index(" xmlns="))
        root = ElementTree.fromstring(text[:start] + text[end:])
        if status != 200:
            code = root.findtext("Error/Code") or ""
            raise Failed(code, code, root.findtext("Error/Message") or "", status)
        return root

    async def sns(self, action: str, **values: str) -> ElementTree.Element:
        return await self.form(action, "2010-03-31", **values)

    async def post(
        self, body: bytes, more: dict[str, str], path: str = "/", queue: str | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        sent = False

        async def receive() -> MutableMapping[str, Any]:
            nonlocal sent
            if sent:
                await asyncio.Event().wait()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        headers = {**self.headers, **more}
        scope = {
            "type": "http",
            "app": self.app,
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "scheme": "http",
            "server": ("broker", 8080),
            "client": (self.host, 50_000),
            **({} if self.who is None else {PRINCIPAL: self.who}),
            "path_params": {} if queue is None else {"queue": queue},
        }
        response = await self.entry.answer(Request(scope, receive))
        return response.status_code, dict(response.headers), bytes(response.body)

    # -- shortcuts --------------------------------------------------------------------------

    async def create(self, name: str = "jobs", **attributes: str) -> str:
        if name.endswith(".fifo"):
            attributes.setdefault("FifoQueue", "true")
        url: str = (await self("CreateQueue", QueueName=name, Attributes=attributes))["QueueUrl"]
        return url

    async def send(self, url: str, *bodies: str, **more: Any) -> list[Table]:
        return [await self("SendMessage", QueueUrl=url, MessageBody=b, **more) for b in bodies]

    async def receive(self, url: str, count: int = 10, **more: Any) -> list[Table]:
        answer = await self(
            "ReceiveMessage",
            QueueUrl=url,
            MaxNumberOfMessages=count,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
            **more,
        )
        messages: list[Table] = answer.get("Messages", [])
        return messages

    async def bodies(self, url: str, **more: Any) -> list[str]:
        return [message["Body"] for message in await self.receive(url, **more)]

    async def delete(self, url: str, *messages: Table) -> None:
        for message in messages:
            await self("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    async def attributes(self, url: str, *names: str) -> dict[str, str]:
        answer = await self("GetQueueAttributes", QueueUrl=url, AttributeNames=names or ["All"])
        found: dict[str, str] = answer.get("Attributes", {})
        return found

    async def arn(self, url: str) -> str:
        return (await self.attributes(url, "QueueArn"))["QueueArn"]


def with_sdk(test: Callable[[Sdk], Awaitable[None]], **configs: str) -> None:
    """Runs a test on its own node, in virtual time."""
    given = {name.replace("_", "."): value for name, value in configs.items()}

    async def run(node: Node) -> None:
        moves = MoveTasks(Gateway(node.ctx))
        background = asyncio.get_running_loop().create_task(moves.run())
        try:
            await test(Sdk(node, moves))
        finally:
            background.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await background

    on_node(run, configs=CONFIGS | {"default.replication.factor": "1"} | given)


def with_served_sdk(test: Callable[[Sdk], Awaitable[None]], **configs: str) -> None:
    """Runs a test on a whole simulated node, for actions that act as clients of the cluster."""
    given = {name.replace("_", "."): value for name, value in configs.items()}

    async def main() -> None:
        nodes = SimCluster(loop, 1, overrides=OVERRIDES | given)
        await nodes.start()
        (node,) = nodes.nodes()
        await test(Sdk(cast("Node", node), node.moves))
        nodes.close()

    loop = SimLoop(1, time_max=3_600)
    loop.run(main())


async def failure(call: Awaitable[object]) -> Failed:
    """Returns the error of a call that must fail."""
    try:
        answer = await call
    except Failed as failed:
        return failed
    raise AssertionError(f"it did not fail: {answer}")
