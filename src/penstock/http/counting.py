"""A row of a table of routes made a route: its requests are counted, timed and audited."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.base.errors import Refused
from penstock.doors.door import Door
from penstock.http.auditing import tell_route
from penstock.http.metering import require_request_time
from penstock.http.problems import status_of

Host = TypeVar("Host", contravariant=True)


class Row(Protocol[Host]):
    """What every table of routes says of each."""

    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def handler(self) -> Callable[[Host, Request], Awaitable[Response]]: ...


def counted(row: Row[Host], host: Host, door: Door) -> Route:
    metrics, name = door.ctx.metrics, f"{row.method} {row.path}"

    async def answer(request: Request) -> Response:
        now = asyncio.get_running_loop().time
        started, status = now(), 500
        try:
            require_request_time(door, request)
            response = await row.handler(host, request)
            status = response.status_code
        except Refused as refused:
            status = status_of(refused.code)
            raise
        except HTTPException as error:
            status = error.status_code
            raise
        finally:
            tell_route(door, request, name, status)
            metrics.http_requests.counter(name, str(status)).value += 1
            metrics.http_seconds.histogram(name).observe(now() - started)
        return response

    return Route(row.path, answer, methods=[row.method])
