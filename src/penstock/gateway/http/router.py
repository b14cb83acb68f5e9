"""Finds the route of a request by the first segment of its path, instead of trying all routes.

There are many routes, and each costs a regular expression; most begin with a constant segment.
Routes that begin with a parameter are tried last. Precedence, and the response if only the method
does not match, are as in Starlette.

Routes made from table rows, with requests counted, timed and audited.
"""

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Protocol, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from penstock.base.errors import ErrorCode, Refused
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.http.audit import audit_route
from penstock.gateway.http.cpu_quota import require_request_time
from penstock.gateway.http.problems import CLIENT_GONE, status_of

Host = TypeVar("Host", contravariant=True)
NAME_CHARS_MAX = 100


class RouteRow(Protocol[Host]):
    """Row of a route table."""

    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def handler(self) -> Callable[[Host, Request], Awaitable[Response]]: ...


def instrumented(
    row: RouteRow[Host], host: Host, gateway: Gateway, parameters: Collection[str] | None = None
) -> Route:
    """Makes an instrumented route. `parameters`: all that the query may have; None: not checked."""
    metrics, name = gateway.ctx.metrics, f"{row.method} {row.path}"

    async def answer(request: Request) -> Response:
        now = asyncio.get_running_loop().time
        started, status = now(), 500
        try:
            require_request_time(gateway, request)
            if parameters is not None and request.url.query:
                require_known(request.query_params, parameters)
            response = await row.handler(host, request)
            status = response.status_code
        except Refused as refused:
            status = status_of(refused.code)
            raise
        except HTTPException as error:
            status = error.status_code
            raise
        except ClientDisconnect:
            status = CLIENT_GONE
            raise
        finally:
            audit_route(gateway, request, name, status)
            metrics.http_requests.counter(name, str(status)).value += 1
            metrics.http_seconds.histogram(name).observe(now() - started)
        return response

    return Route(row.path, answer, methods=[row.method])


def require_known(given: Iterable[str], known: Collection[str]) -> None:
    """Refuses unknown parameters, because a mistyped one would have no effect."""
    for name in given:
        if name in known:
            continue
        meant = difflib.get_close_matches(name[:NAME_CHARS_MAX], known, n=1)
        if meant:
            hint = f"did you mean {meant[0]}?"
        else:
            hint = f"allowed are {', '.join(known)}" if known else "this route takes none"
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"unknown parameter {name[:NAME_CHARS_MAX]}: {hint}"
        )


CHOSEN = "penstock.route"


class RouteIndex(BaseRoute):
    """Single route that dispatches to all others."""

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self.routes = list(routes)
        self._wild = [route for route in self.routes if _first_segment(route) is None]
        segments = dict.fromkeys(_first_segment(route) for route in self.routes)
        self._by_segment: Mapping[str, list[BaseRoute]] = {
            segment: [route for route in self.routes if _first_segment(route) == segment]
            + self._wild
            for segment in segments
            if segment is not None
        }

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http":
            return Match.NONE, {}
        segment = scope["path"].split("/", 2)[1] if scope["path"].startswith("/") else ""
        partial: tuple[Match, Scope] = Match.NONE, {}
        for route in self._by_segment.get(segment, self._wild):
            match, found = route.matches(scope)
            if match is Match.NONE:
                continue
            found[CHOSEN] = route
            if match is Match.FULL:
                return match, found
            if partial[0] is Match.NONE:
                partial = match, found
        return partial

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope[CHOSEN].handle(scope, receive, send)


def _first_segment(route: BaseRoute) -> str | None:
    """Returns the constant first segment of a route's path; None if it is a parameter."""
    if not isinstance(route, Route):
        return None
    segment = route.path.split("/", 2)[1]
    return None if segment.startswith("{") else segment
