"""Calls the leaders of a topic's partitions, on this node and others, concurrently.

On this node the Kafka handlers are called in process. To another node the same request goes over
the wire with a node's permissions, so callers check the client's first. The response of a leader
that cannot be reached is missing from the result.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from penstock.broker.api.context import Context
from penstock.cluster.metadata.image import TopicImage
from penstock.cluster.replication.peer_connections import PEER_ERRORS
from penstock.gateway.core.caller import Principal
from penstock.gateway.core.in_process_calls import InProcessCalls

CHANNEL = "doors-leaders"
TIMEOUT_MS = 15_000

Answer = TypeVar("Answer")


class LeaderCalls:
    """Client of the leaders of all partitions."""

    def __init__(self, ctx: Context, handlers: InProcessCalls) -> None:
        self._ctx = ctx
        self._handlers = handlers

    async def ask(
        self,
        principal: Principal,
        topic: TopicImage,
        partitions: Iterable[int],
        make: Callable[[list[int]], object],
        answer: type[Answer],
        *,
        version: int | None = None,
    ) -> list[Answer]:
        """Returns the leaders' responses to `make(their partitions)`.

        `version`: for a request that ApiVersions does not list.
        """
        by_node: dict[int, list[int]] = {}
        for index in partitions:
            leader = topic.partitions[index].leader
            if leader in self._ctx.image.brokers:
                by_node.setdefault(leader, []).append(index)
        found = await asyncio.gather(
            *(
                self._ask(principal, node, make(indexes), answer, version)
                for node, indexes in by_node.items()
            )
        )
        return [one for one in found if one is not None]

    async def _ask(
        self,
        principal: Principal,
        node_id: int,
        request: object,
        answer: type[Answer],
        version: int | None,
    ) -> Answer | None:
        if node_id == self._ctx.node_id:
            return await self._handlers.ask(principal, request, answer)
        self._handlers.check(request)
        try:
            return await self._ctx.queue.queues.around.peers.ask(
                node_id, request, answer, channel=CHANNEL, version=version, timeout_ms=TIMEOUT_MS
            )
        except PEER_ERRORS:
            return None
