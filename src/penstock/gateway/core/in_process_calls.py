"""Calls the Kafka handlers in process, as a client of this node would over the wire.

So topics, groups, configs and appends of a gateway pass the same checks, permissions and counters
as those of Kafka clients. A handler may reply at once, later, or after waiting; here all three are
one awaitable. Requests have the newest version.

Only for this node: requests for what another node coordinates or leads are refused as over the
wire.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from penstock.base.ports import Buffer
from penstock.broker.api.call import NEVER, Call, Prepared
from penstock.broker.api.context import Context
from penstock.broker.api.quota import MeteredCall
from penstock.broker.api.routes import ROUTES
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
