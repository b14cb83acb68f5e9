"""ASGI application of the HTTP port: all routes, built over the node's `HttpState`.

`/` links to the other pages. `/healthz` is the liveness check, `/readyz` the readiness check,
`/metrics` the Prometheus endpoint (without names of topics and groups for clients that may not
describe the cluster), `/version` the version. `gateway.rest.route_table` has the routes of topics
and queues, over the node's `Gateway`.
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
from penstock.base.fair_scheduler import FairScheduler
from penstock.base.metrics import Catalogue
from penstock.base.ports import Buffer
from penstock.broker.api.large_replies import Listings
from penstock.broker.api.response_rows import CLUSTER_NAME
from penstock.broker.api.route_row import Operation, ResourceType
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.move_tasks import MoveTasks
from penstock.gateway.core.permissions import may
from penstock.gateway.http.authentication import Users
from penstock.gateway.http.metrics import content_type_for, is_strict, render_steps
from penstock.gateway.http.problems import (
    answer_client_gone,
    answer_http_error,
    answer_internal_error,
    answer_refused,
)
from penstock.gateway.http.request_io import WaitingRequests, principal_of
from penstock.gateway.http.router import RouteIndex, instrumented
from penstock.gateway.registry.endpoint import registry_routes
from penstock.gateway.rest.route_table import ENDPOINTS
from penstock.gateway.sqs.endpoint import AwsFront


class ConsolePages(Protocol):
    """Pages for people that the console adds to the port."""

    @property
    def routes(self) -> Sequence[BaseRoute]: ...

    @property
    def home(self) -> str | None:
        """Redirect target for browsers that request `/`; None: the default."""
        ...

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """Wraps `app` with middleware that sees every request first."""
        ...


@dataclass(frozen=True, slots=True)
class HttpState:
    """State of the node that the HTTP port uses."""

    version: str
    node_id: int
    cluster_id: str
    kafka_address: str
    """HOST:PORT of the Kafka listener, as advertised to clients."""
    catalogue: Catalogue
    health_problem: Callable[[], str | None]
    """Returns None while the process is healthy; else why it should be restarted."""
    readiness_problem: Callable[[], str | None]
    """Returns None while the node is ready for clients; else why it is not."""
    gateway: Gateway | None = None
    """Gateway to topics and queues; None: the port serves only the pages about the node."""
    waits: WaitingRequests = field(default_factory=WaitingRequests)
    """Waiting requests, cancelled when the server stops."""
    users: Users | None = None
    """Verifies credentials; None: every client is anonymous."""
    moves: MoveTasks | None = None
    """Move tasks of dead-letter queues; with them the port serves SQS and SNS."""
    console: ConsolePages | None = None
    """Console; None if it is disabled."""


PAGES = {
    "/healthz": "liveness check: 200, or 503 with the reason",
    "/readyz": "readiness check: 200, or 503 with the reason",
    "/metrics": "metrics as Prometheus text, or as OpenMetrics if requested",
    "/version": "version, node, cluster and Kafka address",
    "/docs": "documentation of all routes",
    "/openapi.json": "OpenAPI 3.1 description of all routes",
}
"""Pages with their descriptions, shown at `/` and in the documentation."""


def build_app(state: HttpState) -> ASGIApp:
    about = {
        "version": state.version,
        "node_id": state.node_id,
        "cluster_id": state.cluster_id,
        "kafka": state.kafka_address,
    }

    scheduler = (
        state.gateway.ctx.metadata.scheduler if state.gateway is not None else FairScheduler()
    )
    scrapes = Scrapes(state.catalogue, scheduler)

    async def landing(request: Request) -> Response:
        if "text/html" in request.headers.get("accept", ""):
            # A browser asks for a page.
            return RedirectResponse((state.console and state.console.home) or "/docs")
        links = dict(PAGES)
        if state.console is not None and state.console.home is not None:
            links[state.console.home] = "the web console"
        if state.gateway is not None:
            links |= {f"{row.method} {row.path}": row.summary for row in ENDPOINTS}
        return JSONResponse({"name": "penstock", **about, "links": links})

    async def healthz(request: Request) -> Response:
        return _health_response(state.health_problem())

    async def readyz(request: Request) -> Response:
        return _health_response(state.health_problem() or state.readiness_problem())

    async def metrics(request: Request) -> Response:
        accept = request.headers.get("accept", "")
        with_names = _may_describe_cluster(state, request)
        body = await scrapes.scrape(principal_of(request).holder, accept, with_names=with_names)
        return Response(body, headers={"content-type": content_type_for(accept)})

    async def version(request: Request) -> Response:
        return JSONResponse(about)

    async def docs(request: Request) -> Response:
        from penstock.gateway.rest import openapi  # Imported late: a broker starts faster.

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
            instrumented(row, state.gateway, state.gateway, [p.name for p in row.parameters])
            for row in ENDPOINTS
        ] + routes
        routes = [*registry_routes(state.gateway), *routes]
    if state.console is not None:
        routes = [*state.console.routes, *routes]
    app = Starlette(
        routes=[RouteIndex(routes)],
        exception_handlers={
            HTTPException: answer_http_error,
            Refused: answer_refused,
            ClientDisconnect: answer_client_gone,
            Exception: answer_internal_error,
        },
    )
    app.state.waits = state.waits
    if state.gateway is None or state.moves is None:
        return app
    return AwsFront(app, state.gateway, state.moves)


class Scrapes:
    """Shares one rendering among concurrent scrapes; it is not cached any longer."""

    def __init__(self, catalogue: Catalogue, scheduler: FairScheduler) -> None:
        self._catalogue = catalogue
        self._scheduler = scheduler
        self._listings = Listings()

    async def scrape(self, holder: str, accept: str, *, with_names: bool) -> bytes:
        async def make() -> list[Buffer]:
            steps = render_steps(self._catalogue, accept, with_names=with_names)
            return [await self._scheduler.do(holder, steps)]

        key = is_strict(accept), with_names
        [body] = await self._listings.get(object, key, make)
        return bytes(body)


def _may_describe_cluster(state: HttpState, request: Request) -> bool:
    if state.gateway is None:
        return True
    who, cluster = principal_of(request), ResourceType.CLUSTER
    return may(state.gateway.ctx, who, Operation.DESCRIBE, cluster, CLUSTER_NAME)


def _health_response(problem: str | None) -> Response:
    if problem is None:
        return PlainTextResponse("ok\n")
    return PlainTextResponse(problem + "\n", status_code=503)
