"""Asks the Kafka handlers in process, as a client of this node would over the wire.

So a door's topics, groups, configs and appends are the same as everybody's: the same checks, the
same rights, the same counters. A handler answers at once, later, or after waiting; here all three
are one awaitable. Requests are those of the newest version.

Only for this node: what another one coordinates or leads is refused as over the wire.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from penstock.base.ports import Buffer
from penstock.broker.api.call import NEVER, Call, Prepared
from penstock.broker.api.context import Context
from penstock.broker.api.quota import MeteredCall
from penstock.broker.api.routes import ROUTES
from penstock.gateway.core.caller import Principal
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
"""They name topics that there are, and bring or ask for so much that it is not written twice."""
CLIENT_ID = "penstock-door"
MUTATIONS = (CreateTopicsRequest, CreatePartitionsRequest, DeleteTopicsRequest)
"""What is charged by the partition; bytes are charged where they come in and go out."""


class InProcessConnection:
    """Whoever came through a door, in the place of a connection."""

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
        pass  # Whoever is above a quota is told when they come back (`quota`).

    def when_closed(self, act: Callable[[], None]) -> None:
        pass


class InProcessCalls:
    """This node's handlers, by the class of the request."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._routes = {route.request: route for route in ROUTES}
        self._prepared: dict[type, Prepared] = {}

    async def ask(self, principal: Principal, request: object, answer: type[Answer]) -> Answer:
        """What the handler answers; if this is cancelled, it is as if a client hung up."""
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
        """Refuses what no client could have sent, whoever it is for: it would be in no answer."""
        prepared = self._prepared.get(type(request)) or self._prepare(type(request))
        if not isinstance(request, UNCHECKED):
            check_speakable(request, prepared.version)
        return prepared

    async def _parked(self, call: Call, replied: "asyncio.Future[Any]") -> Any:
        """The reply that comes when it comes, or what the handler says when its time is up."""
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
