"""The routes of the HTTP port, as one Starlette application built over a narrow state.

`/` links to the rest, `/healthz` says whether the process should be left alive, `/readyz` whether
it should be sent work, `/metrics` is what Prometheus scrapes, `/version` is what runs here.
Handlers read the state and answer; none of them changes anything.
"""

from collections.abc import Callable
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from penstock.base.metrics import Catalogue
from penstock.http.metrics import render


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


PAGES = {
    "/healthz": "is the process alive: 200, or 503 with the reason",
    "/readyz": "may clients be sent here: 200, or 503 with the reason",
    "/metrics": "Prometheus text, or OpenMetrics when asked for",
    "/version": "version, node, cluster and Kafka address",
}
"""Every page and what it answers; `/` shows it and the documentation is made from it."""


def build_app(state: HttpState) -> Starlette:
    about = {
        "version": state.version,
        "node_id": state.node_id,
        "cluster_id": state.cluster_id,
        "kafka": state.kafka_address,
    }

    async def landing(request: Request) -> Response:
        return JSONResponse({"name": "penstock", **about, "links": PAGES})

    async def healthz(request: Request) -> Response:
        return _verdict(state.health_problem())

    async def readyz(request: Request) -> Response:
        return _verdict(state.health_problem() or state.readiness_problem())

    async def metrics(request: Request) -> Response:
        body, content_type = render(state.catalogue, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    async def version(request: Request) -> Response:
        return JSONResponse(about)

    return Starlette(
        routes=[
            Route("/", landing),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            Route("/version", version),
        ]
    )


def _verdict(problem: str | None) -> Response:
    if problem is None:
        return PlainTextResponse("ok\n")
    return PlainTextResponse(problem + "\n", status_code=503)
