"""Dispatcher: decodes a frame, calls its handler, and encodes the response.

Lookups are done once for each (API, version) and cached, so that a request costs a header, a codec
call and a function call. An unsupported API or version closes the connection, as in Kafka. Only
ApiVersions replies in its oldest version instead, so that the client can choose again.

Before authentication, if it is required, only routes that need no permission are allowed; any other
request closes the connection. So does a request after the session has expired.
"""

import asyncio
from typing import Any

from penstock.base.errors import PeerError
from penstock.base.ports import Buffer
from penstock.broker.api.api_versions import API_VERSIONS_KEY, unsupported
from penstock.broker.api.audit_rules import (
    ADMINISTRATIVE,
    SASL_AUTHENTICATE,
    audited_call,
    is_told,
)
from penstock.broker.api.call import Call, ClientConnection, Prepared
from penstock.broker.api.context import Context
from penstock.broker.api.quota import MeteredCall, timed
from penstock.broker.api.routes import ROUTES
from penstock.security.login import Login
from penstock.wire.codec import reader, step_writer, writer
from penstock.wire.framing import has_response_tags, tagged_frame
from penstock.wire.request_header import read_request_header


class Dispatcher:
    """Prepared routes of one listener."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._now = asyncio.get_running_loop().time
        self._routes = {route.key: route for route in ROUTES}
        self._prepared: dict[tuple[int, int], Prepared] = {}
        self._timed: dict[Prepared, Prepared] = {}

    def encode(self, call: Call, response: Any) -> list[Buffer]:
        prepared = call.prepared
        if call.asked is not None or call.denied is not None or prepared.is_login:
            audited = audited_call(call, response)
            if audited is not None:
                self._ctx.security.audit.tell(audited)
        parts: list[Buffer] = []
        prepared.write(response, parts)
        return tagged_frame(call.correlation_id, parts, prepared.has_tags)

    def call(self, caller: ClientConnection, view: memoryview, start: int, end: int) -> Call:
        key, version, correlation_id, client_id, position = read_request_header(view, start, end)
        prepared = self._prepared.get((key, version))
        if prepared is None:
            prepared = self._prepare(key, version)
        login = caller.login
        if login is not None and prepared.route.needs is not None:
            self._check(login, prepared.route.name)
        prepared.metrics.requests.value += 1
        if self._ctx.meter.is_on:
            asked = correlation_id, client_id, version, position
            return self._metered(caller, prepared, *asked, end - start)
        return Call(
            caller, prepared, correlation_id, client_id, version, position, self.encode, self._now
        )

    def _metered(
        self,
        caller: ClientConnection,
        prepared: Prepared,
        correlation_id: int,
        client_id: str | None,
        version: int,
        position: int,
        size: int,
    ) -> Call:
        """Creates a call that charges quotas; used while any quota is set."""
        meter = self._ctx.meter
        if meter.times_requests:
            known = self._timed.get(prepared)
            if known is None:
                known = self._timed[prepared] = timed(prepared)
            prepared = known
        asked = correlation_id, client_id, version, position
        return MeteredCall(caller, prepared, *asked, self.encode, self._now, meter, size)

    def _check(self, login: Login, name: str) -> None:
        if login.is_awaited:
            raise PeerError(f"{name} before authentication")
        if self._now() >= login.ends_at:
            raise PeerError("the session has expired without re-authentication")

    def _prepare(self, key: int, version: int) -> Prepared:
        route = self._routes.get(key)
        if route is None:
            raise PeerError(f"unknown api key {key}")
        low, high = route.versions
        asked = version
        if not low <= version <= high:
            if key != API_VERSIONS_KEY:
                raise PeerError(
                    f"{route.name} version {version} is not supported: {low} to {high} are"
                )
            version = 0
        prepared = Prepared(
            route,
            version,
            reader(route.request, version),
            writer(route.response, version),
            self._ctx.metrics.route(route.name),
            self._ctx.of(route.handler),
            has_tags=has_response_tags(route.response, version),
            is_audited=key in ADMINISTRATIVE,
            is_login=key == SASL_AUTHENTICATE,
            # Compiled only for responses that can be large.
            write_steps=lambda m, parts: step_writer(route.response, version)(m, parts),
        )
        if asked == version:
            # Unsupported versions are not cached: a client can request 65,536 of them.
            self._prepared[key, version] = prepared
        return prepared

    def handle(self, call: Call, view: memoryview, end: int) -> Any:
        prepared = call.prepared
        if call.version != prepared.version:
            call.version = prepared.version
            return unsupported()
        # Bytes after the body are ignored, as in Kafka: librdkafka sends three of them after the
        # null topic array of its Metadata requests.
        request, _ = prepared.read(view, call.position, end)
        if prepared.is_audited and is_told(prepared.route.key, request):
            call.asked = request
        return prepared.route.handler(prepared.context, call, request)
