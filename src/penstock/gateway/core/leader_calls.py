"""Calls the leaders of a topic's partitions, on this node and others, concurrently.

On this node the Kafka handlers are called in process. To another node the same request goes over
the wire with a node's permissions, so callers check the client's first. The response of a leader
that cannot be reached is missing from the result.
"""

import asyncio
from collections.abc import Callable, Iterable

from penstock.base.fair_scheduler import REST_SECONDS
from penstock.broker.api.context import Context
from penstock.cluster.metadata.image import TopicImage
from penstock.cluster.replication.peer_connections import PEER_ERRORS
from penstock.gateway.core.coordinator_calls import TIMEOUT_MS
from penstock.gateway.core.in_process_calls import Answer, InProcessCalls
from penstock.gateway.core.permissions import Principal

LEADERS_CHANNEL = "doors-leaders"
PARTITIONS_AT_ONCE = 200
"""Partitions in one request: checking and encoding more of them would block the event loop."""


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
        """Returns the leaders' responses to `make(their partitions)`, perhaps several of each.

        `version`: for a request that ApiVersions does not list.
        """
        by_node: dict[int, list[int]] = {}
        for index in partitions:
            leader = topic.partitions[index].leader
            if leader in self._ctx.image.brokers:
                by_node.setdefault(leader, []).append(index)
        found = await asyncio.gather(
            *(
                self._ask_in_parts(principal, node, indexes, make, answer, version)
                for node, indexes in by_node.items()
            )
        )
        return [one for answers in found for one in answers]

    async def _ask_in_parts(
        self,
        principal: Principal,
        node_id: int,
        indexes: list[int],
        make: Callable[[list[int]], object],
        answer: type[Answer],
        version: int | None,
    ) -> list[Answer]:
        found = []
        for at in range(0, len(indexes), PARTITIONS_AT_ONCE):
            request = make(indexes[at : at + PARTITIONS_AT_ONCE])
            one = await self._ask(principal, node_id, request, answer, version)
            if one is None:
                break  # It cannot be reached: the rest would wait as long again.
            found.append(one)
            await asyncio.sleep(REST_SECONDS if at + PARTITIONS_AT_ONCE < len(indexes) else 0)
        return found

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
                node_id,
                request,
                answer,
                channel=LEADERS_CHANNEL,
                version=version,
                timeout_ms=TIMEOUT_MS,
            )
        except PEER_ERRORS:
            return None
