"""The routes of the HTTP port, as one application built over a narrow state.

`/` links to the rest, `/healthz` says whether the process should be left alive, `/readyz` whether
it should be sent work, `/metrics` is what Prometheus scrapes (without names of topics and groups
for those who may not describe the cluster), `/version` is what runs here. The routes of topics and
queues are those of `gateway.rest.route_table`, over the node's `Gateway`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from penstock.base.errors import Refused
from penstock.base.fair_turns import FairTurns
from penstock.base.metrics import Catalogue
from penstock.base.ports import Buffer
from penstock.broker.api.large_replies import Listings
from penstock.broker.api.response_rows import CLUSTER_NAME
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.move_tasks import MoveTasks
from penstock.gateway.core.permissions import may
from penstock.gateway.http.authentication import Users
from penstock.gateway.http.instrumented_route import counted
from penstock.gateway.http.metrics import is_strict, rendering, type_for
from penstock.gateway.http.problems import (
    answer_bug,
    answer_http_error,
    answer_nobody,
    answer_refused,
)
from penstock.gateway.http.request_io import Waits, principal_of
from penstock.gateway.http.router import Directory
from penstock.gateway.registry.endpoint import registry_routes
from penstock.gateway.rest.route_table import ENDPOINTS
from penstock.gateway.sqs.endpoint import AwsFront


class Annex(Protocol):
    """Pages for people that a layer above adds to the port."""

    @property
    def routes(self) -> Sequence[BaseRoute]: ...

    @property
    def home(self) -> str | None:
        """Where a browser that asks for `/` is sent; None: nowhere of its own."""
        ...

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """Looks at every request before the others do."""
        ...


@dataclass(frozen=True, slots=True)
class HttpState:
    """All that the HTTP door knows of its node."""

    version: str
    node_id: int
    cluster_id: str
    kafka_address: str
    """HOST:PORT of the Kafka listener, as advertised to clients."""
    catalogue: Catalogue
    health_problem: Callable[[], str | None]
    """None while the process works; else one sentence on why it should be restarted."""
    readiness_problem: Callable[[], str | None]
    """None while clients are welcome; else one sentence on why they should go elsewhere."""
    gateway: Gateway | None = None
    """The way to topics and queues; None: this port serves no more than the pages about itself."""
    waits: Waits = field(default_factory=Waits)
    """Requests that wait for something: they are told when the server stops."""
    users: Users | None = None
    """Those who may say who they are; None: nobody does, and everybody is anonymous."""
    moves: MoveTasks | None = None
    """The tasks that move messages between queues; the SQS and SNS doors are there if these are."""
    annex: Annex | None = None
    """The console, where there is one."""


PAGES = {
    "/healthz": "is the process alive: 200, or 503 with the reason",
    "/readyz": "may clients be sent here: 200, or 503 with the reason",
    "/metrics": "Prometheus text, or OpenMetrics when asked for",
    "/version": "version, node, cluster and Kafka address",
    "/docs": "every route, for people",
    "/openapi.json": "every route, for programs: OpenAPI 3.1",
}
"""Every page and what it answers; `/` shows it and the documentation is made from it."""


def build_app(state: HttpState) -> ASGIApp:
    about = {
        "version": state.version,
        "node_id": state.node_id,
        "cluster_id": state.cluster_id,
        "kafka": state.kafka_address,
    }

    turns = state.gateway.ctx.metadata.turns if state.gateway is not None else FairTurns()
    scrapes = Scrapes(state.catalogue, turns)

    async def landing(request: Request) -> Response:
        if "text/html" in request.headers.get("accept", ""):
            # Somebody looks at it in a browser.
            return RedirectResponse((state.annex and state.annex.home) or "/docs")
        links = dict(PAGES)
        if state.annex is not None and state.annex.home is not None:
            links[state.annex.home] = "the console: everything at a glance, in a browser"
        if state.gateway is not None:
            links |= {f"{row.method} {row.path}": row.summary for row in ENDPOINTS}
        return JSONResponse({"name": "penstock", **about, "links": links})

    async def healthz(request: Request) -> Response:
        return _verdict(state.health_problem())

    async def readyz(request: Request) -> Response:
        return _verdict(state.health_problem() or state.readiness_problem())

    async def metrics(request: Request) -> Response:
        accept = request.headers.get("accept", "")
        with_names = _may_describe_cluster(state, request)
        body = await scrapes.scrape(principal_of(request).holder, accept, with_names=with_names)
        return Response(body, headers={"content-type": type_for(accept)})

    async def version(request: Request) -> Response:
        return JSONResponse(about)

    async def docs(request: Request) -> Response:
        from penstock.gateway.rest import openapi  # No broker should wait for it to start.

        headers = {"content-security-policy": openapi.PAGE_POLICY}
        return Response(openapi.page(state.version), media_type="text/html", headers=headers)

    async def openapi_json(request: Request) -> Response:
        from penstock.gateway.rest import openapi

        return Response(openapi.document(state.version), media_type="application/json")

    routes: list[BaseRoute] = [
        Route("/", landing),
        Route("/docs", docs),
        Route("/openapi.json", openapi_json),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        Route("/version", version),
    ]
    if state.gateway is not None:
        routes = [
            counted(row, state.gateway, state.gateway, [p.name for p in row.parameters])
            for row in ENDPOINTS
        ] + routes
        routes = [*registry_routes(state.gateway), *routes]
    if state.annex is not None:
        routes = [*state.annex.routes, *routes]
    app = Starlette(
        routes=[Directory(routes)],
        exception_handlers={
            HTTPException: answer_http_error,
            Refused: answer_refused,
            ClientDisconnect: answer_nobody,
            Exception: answer_bug,
        },
    )
    app.state.waits = state.waits
    if state.gateway is None or state.moves is None:
        return app
    return AwsFront(app, state.gateway, state.moves)


class Scrapes:
    """Those who scrape at the same time get the same answer; it is kept no longer than that."""

    def __init__(self, catalogue: Catalogue, turns: FairTurns) -> None:
        self._catalogue = catalogue
        self._turns = turns
        self._listings = Listings()

    async def scrape(self, holder: str, accept: str, *, with_names: bool) -> bytes:
        async def make() -> list[Buffer]:
            steps = rendering(self._catalogue, accept, with_names=with_names)
            return [await self._turns.do(holder, steps)]

        key = is_strict(accept), with_names
        [body] = await self._listings.get(object, key, make)
        return bytes(body)


def _may_describe_cluster(state: HttpState, request: Request) -> bool:
    if state.gateway is None:
        return True
    who, cluster = principal_of(request), ResourceType.CLUSTER
    return may(state.gateway.ctx, who, Operation.DESCRIBE, cluster, CLUSTER_NAME)


def _verdict(problem: str | None) -> Response:
    if problem is None:
        return PlainTextResponse("ok\n")
    return PlainTextResponse(problem + "\n", status_code=503)
