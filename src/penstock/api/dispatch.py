"""From a frame to the right handler, and from its answer to a frame.

Everything is looked up once for each (API, version) and kept, so that a request costs a header, a
codec call and a function call. An API or version that we do not speak ends the connection, as in
Kafka; only ApiVersions answers in its oldest version instead, so that the client can choose again.
"""

import asyncio
from typing import Any

from penstock.api.context import Call, Caller, Context
from penstock.api.metrics import RouteMetrics
from penstock.api.route import Route
from penstock.api.routes import ROUTES
from penstock.api.versions import API_VERSIONS_KEY, unsupported
from penstock.base.errors import PeerError
from penstock.base.ports import Buffer
from penstock.wire.codec import reader, writer
from penstock.wire.frame import read_request_header, response_frame


def encode(call: Call, response: Any) -> list[Buffer]:
    parts: list[Buffer] = []
    route, version = call.route, call.version
    writer(route.response, version)(response, parts)
    return response_frame(call.correlation_id, route.response, version, parts)


class Dispatcher:
    """The route table, ready to be called."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._now = asyncio.get_running_loop().time
        self._routes: dict[int, tuple[Route, RouteMetrics]] = {
            route.key: (route, ctx.metrics.route(route.name)) for route in ROUTES
        }

    def call(self, caller: Caller, view: memoryview, start: int, end: int) -> Call:
        key, version, correlation_id, client_id, position = read_request_header(view, start, end)
        row = self._routes.get(key)
        if row is None:
            raise PeerError(f"unknown api key {key}")
        route, metrics = row
        low, high = route.versions
        if not low <= version <= high and key != API_VERSIONS_KEY:
            raise PeerError(f"{route.name} version {version}, spoken are {low} to {high}")
        metrics.requests.value += 1
        return Call(
            caller, route, version, correlation_id, client_id, position, encode, metrics, self._now
        )

    def handle(self, call: Call, view: memoryview, end: int) -> Any:
        route = call.route
        if not route.versions[0] <= call.version <= route.versions[1]:
            call.version = 0
            return unsupported()
        # Bytes after the body are ignored, as Kafka does: librdkafka leaves three of them after
        # the null topic array of its Metadata requests.
        request, _ = reader(route.request, call.version)(view, call.position, end)
        return route.handler(self._ctx, call, request)
