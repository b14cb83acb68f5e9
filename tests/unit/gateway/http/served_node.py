"""HTTP endpoint of a whole simulated node, for routes that act as clients of the cluster."""

from collections.abc import Awaitable, Callable
from typing import cast

from simulation.cluster import SimCluster
from simulation.loop import SimLoop
from tests.unit.coordinator.queueing import Node
from tests.unit.gateway.http.web import AUTO, Web

OVERRIDES = AUTO | {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
}


def on_served(test: Callable[[Web], Awaitable[None]], rights: object = None) -> None:
    async def main() -> None:
        nodes = SimCluster(loop, 1, overrides=OVERRIDES)
        await nodes.start()
        (node,) = nodes.nodes()
        if rights is not None:
            node.ctx.authorizer = rights  # type: ignore[assignment]
        await test(Web(cast("Node", node)))
        nodes.close()

    loop = SimLoop(1, time_max=3_600)
    loop.run(main())


async def dead_letter(web: Web, *payloads: str, error: str = "Timeout", topic: str = "t") -> None:
    """Publishes and rejects messages; returns when their dead letters exist."""
    before = await depth(web, f"{topic}.dlq")
    await web.publish(*payloads, topic=topic)
    for message in await web.poll(topic, max=len(payloads)):
        receipt = {"receipt": message["receipt"], "error_class": error, "error": "why"}
        assert (await web.post("/reject", receipt)).status < 300
    while await depth(web, f"{topic}.dlq") < before + len(payloads):
        pass


async def depth(web: Web, topic: str) -> int:
    boxes = (await web.get("/dlq")).json["topics"]
    return sum(box["letters"] for box in boxes if box["topic"] == topic)
