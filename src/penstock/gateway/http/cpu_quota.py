"""Quota on processor time of HTTP requests, charged to the client (KIP-124).

Time counts while a request's own code runs, not while it waits; a stream is charged as it goes.
Each protocol refuses clients above `request_percentage` with its own error
(`require_request_time`). Bytes are charged where they come in and go out (`broker.api.quota`).
"""

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.broker.api.quota import TimedSteps
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.http.request_io import principal_of
from penstock.security.quotas import QuotaKind

CHARGED_SECONDS = 0.05
"""Time charged at once; the remainder is charged when the request ends."""


class CpuQuota:
    """Middleware that charges processor time."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = self._app(scope, receive, send)
        if scope["type"] != "http" or not self._gateway.ctx.meter.times_requests:
            await work
            return
        watch = _Stopwatch(self._gateway, Request(scope))
        try:
            await TimedSteps(watch, work)
        finally:
            watch.charge()


class _Stopwatch:
    """Time of one request that was not charged yet."""

    def __init__(self, gateway: Gateway, request: Request) -> None:
        self._gateway = gateway
        self._request = request
        self._now_s = gateway.ctx.meter.processor_s
        self._begun_s = 0.0
        self._spent_s = 0.0

    def begin(self) -> None:
        self._begun_s = self._now_s()

    def pause(self) -> None:
        self._spent_s += self._now_s() - self._begun_s
        if self._spent_s >= CHARGED_SECONDS:
            self.charge()

    def charge(self) -> None:
        spent_s, self._spent_s = self._spent_s, 0.0
        self._gateway.quota.charge(principal_of(self._request), QuotaKind.REQUEST, spent_s)


def require_request_time(gateway: Gateway, request: Request) -> None:
    """Raises Throttled while the client is above its quota of processor time."""
    if gateway.quota.is_on:
        gateway.quota.require(principal_of(request), QuotaKind.REQUEST)
