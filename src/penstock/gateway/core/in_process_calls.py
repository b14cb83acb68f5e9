"""Calls the Kafka handlers in process, as a client of this node would over the wire.

So topics, groups, configs and appends of a gateway pass the same checks, permissions and counters
as those of Kafka clients. A handler may reply at once, later, or after waiting; here all three are
one awaitable. Requests have the newest version.

Only for this node: requests for what another node coordinates or leads are refused as over the
wire.

Calls a group's coordinator, on this node or another, and retries while it moves. On this node the
Kafka handlers are called in process; to another node the same request goes over the wire. The
other node sees the calling node, not the client: callers check permissions first.

Calls the leaders of a topic's partitions, on this node and others, concurrently. On this node the
Kafka handlers are called in process. To another node the same request goes over the wire with a
node's permissions, so callers check the client's first. The response of a leader that cannot be
reached is missing from the result.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.base.fair_scheduler import REST_SECONDS
from penstock.base.ports import Buffer
from penstock.base.retry import Retry
from penstock.broker.api.call import NEVER, Call, Prepared
from penstock.broker.api.context import Context
from penstock.broker.api.quota import MeteredCall
from penstock.broker.api.routes import ROUTES
from penstock.client.errors import code_of
from penstock.cluster.metadata.image import TopicImage
from penstock.cluster.replication.peer_connections import PEER_ERRORS
from penstock.gateway.core.permissions import Principal
from penstock.security.login import Login
from penstock.wire.encodable import check_speakable
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.messages.produce import ProduceRequest
from penstock.wire.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

Answer = TypeVar("Answer")
UNCHECKED = (ProduceRequest, FetchRequest)
"""Requests that are not test-encoded: their topics are known to exist, and they are too large to be
encoded just for a check."""
CLIENT_ID = "penstock-door"
MUTATIONS = (CreateTopicsRequest, CreatePartitionsRequest, DeleteTopicsRequest)
"""Requests charged by the partition; bytes are charged where they come in and go out."""


class InProcessConnection:
    """Stands in for a client connection: the gateway's client."""

    listener = local_host = ""
    login: Login | None = None

    def __init__(self, principal: Principal) -> None:
        self.principal = principal.name
        self.peer = principal.host

    def settle(self, call: Call) -> None:
        pass

    def close(self) -> None:
        pass

    def mute(self, seconds: float) -> None:
        pass  # A client above its quota is told when to retry (`quota`).

    def when_closed(self, act: Callable[[], None]) -> None:
        pass


class InProcessCalls:
    """Calls this node's handlers by the class of the request."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._routes = {route.request: route for route in ROUTES}
        self._prepared: dict[type, Prepared] = {}

    async def ask(self, principal: Principal, request: object, answer: type[Answer]) -> Answer:
        """Returns the handler's response. Cancelling acts like a client that disconnects."""
        prepared = self.check(request)
        prepared.metrics.requests.value += 1
        loop = asyncio.get_running_loop()
        replied: asyncio.Future[Any] = loop.create_future()

        def encode(call: Call, response: Any) -> list[Buffer]:
            if not replied.done():
                replied.set_result(response)
            return []

        client_id = principal.client_id or CLIENT_ID
        asked = (
            InProcessConnection(principal),
            prepared,
            0,
            client_id,
            prepared.version,
            0,
            encode,
            loop.time,
        )
        if self._ctx.meter.is_on and isinstance(request, MUTATIONS):
            call: Call = MeteredCall(*asked, self._ctx.meter, 0)
        else:
            call = Call(*asked)
        response = prepared.route.handler(prepared.context, call, request)
        try:
            if isinstance(response, Awaitable):
                response = await response
            if response is None:
                response = await self._parked(call, replied)
            elif not call.is_done:
                call.reply(response)
        finally:
            if not call.is_done:
                call.abandon()
        assert isinstance(response, answer)
        return response

    def check(self, request: object) -> Prepared:
        """Refuses requests that cannot be encoded: no client could have sent them."""
        prepared = self._prepared.get(type(request)) or self._prepare(type(request))
        if not isinstance(request, UNCHECKED):
            check_speakable(request, prepared.version)
        return prepared

    async def _parked(self, call: Call, replied: "asyncio.Future[Any]") -> Any:
        """Waits for the reply, or for the handler's reply at the call's deadline."""
        if call.deadline == NEVER or replied.done():
            return await replied
        timer = asyncio.get_running_loop().call_at(call.deadline, call.time_out)
        try:
            return await replied
        finally:
            timer.cancel()

    def _prepare(self, request: type) -> Prepared:
        route = self._routes[request]
        prepared = Prepared(
            route,
            route.versions[1],
            _unused,
            _unused,
            self._ctx.metrics.route(route.name),
            self._ctx.of(route.handler),
        )
        self._prepared[request] = prepared
        return prepared


def _unused(*args: Any) -> Any:
    raise AssertionError("nothing is read or written in process")


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
