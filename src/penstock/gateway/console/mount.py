"""Mount of the console on the HTTP port: pages, files, routes and middleware."""

from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from penstock.gateway.console.console import Console
from penstock.gateway.console.middleware import API, ROOT, ConsoleMiddleware
from penstock.gateway.console.route_row import ConsoleRow
from penstock.gateway.console.route_table import ROWS
from penstock.gateway.console.static_files import INDEX, Assets
from penstock.gateway.http.instrumented_route import instrumented


class ConsoleMount:
    """Console pages of the HTTP port."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._assets = Assets(console.ctx.workers)

    @property
    def home(self) -> str | None:
        return ROOT if self._console.ctx.configs.flag("console.enable") else None

    def wrap(self, app: ASGIApp) -> ASGIApp:
        console = self._console
        return ConsoleMiddleware(app, console.ctx.configs, console.sessions, console.cookie)

    @property
    def routes(self) -> Sequence[BaseRoute]:
        async def page(request: Request) -> Response:
            return await self._assets.answer(request, INDEX)

        async def slash(request: Request) -> Response:
            return RedirectResponse(ROOT)

        async def asset(request: Request) -> Response:
            return await self._assets.answer(request, request.path_params["name"])

        console = self._console
        return [
            *(instrumented(_FullPathRow(row), console, console.gateway) for row in ROWS),
            Route(ROOT, page),
            Route(f"{ROOT}/", slash),
            Route(f"{ROOT}/static/{{name:path}}", asset),
        ]


class _FullPathRow:
    """Row with its full path."""

    def __init__(self, row: ConsoleRow) -> None:
        self.method = row.method
        self.path = f"{API}{row.path}"
        self.handler: Callable[[Console, Request], Awaitable[Response]] = row.answer
