"""Mount of the console on the HTTP port: pages, files, routes and middleware.

Route table of the console, below `/console/api`. These routes serve the console's pages and
change with them. Programs should use the routes of `gateway.rest.route_table`, which the pages
use, too, where they suffice.

Static files of the console: pages, scripts and styles in `static`. They are read once, at the
first request. Browsers cache and revalidate them (ETag), so that a new version of the broker is
used at once and no file is sent twice.
"""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from penstock.base.ports import Workers
from penstock.gateway.console.console import Console, ConsoleRow
from penstock.gateway.console.middleware import API, ROOT, ConsoleMiddleware
from penstock.gateway.console.routes import (
    audit,
    configs,
    dead_letters,
    groups,
    login,
    messages,
    nodes,
    overview,
    pipelines,
    queues,
    security,
    topics,
)
from penstock.gateway.http.router import instrumented

FOLDER = Path(__file__).parent / "static"
INDEX = "index.html"
MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
NOT_FOUND, NOT_MODIFIED = 404, 304


@dataclass(frozen=True, slots=True)
class Asset:
    body: bytes
    media_type: str
    etag: str


class Assets:
    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._assets: dict[str, Asset] | None = None

    async def answer(self, request: Request, name: str) -> Response:
        if self._assets is None:
            self._assets = await self._workers.run(read_all)
        asset = self._assets.get(name)
        if asset is None:
            raise HTTPException(NOT_FOUND)
        headers = {"etag": asset.etag, "cache-control": "no-cache"}
        if asset.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=NOT_MODIFIED, headers=headers)
        return Response(asset.body, headers=headers, media_type=asset.media_type)


def read_all() -> dict[str, Asset]:
    """Reads all files; returns them by their paths below `static`."""
    found: dict[str, Asset] = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.suffix in MEDIA_TYPES:
            body = path.read_bytes()
            etag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
            name = path.relative_to(FOLDER).as_posix()
            found[name] = Asset(body, MEDIA_TYPES[path.suffix], etag)
    return found


FAMILIES = (
    login,
    overview,
    audit,
    configs,
    topics,
    messages,
    groups,
    queues,
    dead_letters,
    nodes,
    pipelines,
    security,
)
ROWS: tuple[ConsoleRow, ...] = tuple(row for family in FAMILIES for row in family.ROWS)


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
