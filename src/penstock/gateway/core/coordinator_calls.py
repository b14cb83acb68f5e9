"""Calls a group's coordinator, on this node or another, and retries while it moves.

On this node the Kafka handlers are called in process; to another node the same request goes over
the wire. The other node sees the calling node, not the client: callers check permissions first.
"""

import asyncio
from collections.abc import Callable, Iterable

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.base.retry import Retry
from penstock.broker.api.context import Context
from penstock.client.errors import code_of
from penstock.gateway.core.in_process_calls import Answer, InProcessCalls
from penstock.gateway.core.permissions import Principal

CHANNEL = "doors-groups"
RETRY_SECONDS = 5.0
PAUSE_SECONDS = (0.05, 0.5)
TIMEOUT_MS = 15_000
MOVING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class CoordinatorCalls:
    """Client of the coordinators of all groups."""

    def __init__(self, ctx: Context, handlers: InProcessCalls) -> None:
        self._ctx = ctx
        self._handlers = handlers

    async def ask(
        self,
        principal: Principal,
        group: str,
        request: object,
        answer: type[Answer],
        codes_of: Callable[[Answer], Iterable[int]],
    ) -> Answer:
        """Returns the coordinator's response; `codes_of` extracts its error codes.

        Raises Refused if the coordinator is not found or reached within `RETRY_SECONDS`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RETRY_SECONDS
        await self._ctx.group.groups.ensure()
        retry = Retry(self._ctx.random, *PAUSE_SECONDS)
        while True:
            try:
                response = await self._ask_once(principal, group, request, answer)
                code = next((code for code in codes_of(response) if code in MOVING), None)
                if code is None or loop.time() >= deadline:
                    return response
            except Refused as refused:
                if refused.code not in MOVING or loop.time() >= deadline:
                    raise
            await retry.pause()

    async def _ask_once(
        self, principal: Principal, group: str, request: object, answer: type[Answer]
    ) -> Answer:
        self._handlers.check(request)
        host = self._ctx.group.groups.host
        index = host.index_of(group)
        leader = self._ctx.image.topics[host.topic].partitions[index].leader
        if leader == self._ctx.node_id:
            return await self._handlers.ask(principal, request, answer)
        return await self.ask_node(leader, request, answer)

    async def ask_node(self, node_id: int, request: object, answer: type[Answer]) -> Answer:
        """Returns another node's response; raises Refused if the node cannot be reached."""
        peers = self._ctx.queue.queues.around.peers
        try:
            return await peers.ask(node_id, request, answer, channel=CHANNEL, timeout_ms=TIMEOUT_MS)
        except (OSError, PeerError) as error:
            raise Refused(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"node {node_id} does not answer: {error}"
            ) from error


def raise_for(code: int, message: str | None = None) -> None:
    """Raises Refused if a response has an error code."""
    if code:
        raise Refused(code_of(code), message)
