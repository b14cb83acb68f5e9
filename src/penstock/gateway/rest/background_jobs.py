"""Errands that run in the background: how far a redrive is, and stopping it.

`POST /dlq/{name}/redrive` with `"background": true` begins one and answers at once (`deadletters`).
"""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.broker.api.route_row import Operation
from penstock.gateway.core.background_jobs import BackgroundJob
from penstock.gateway.core.gateway import Gateway
from penstock.gateway.core.permissions import require_topic
from penstock.gateway.http.request_io import json_answer, principal_of
from penstock.gateway.rest.endpoint import RestEndpoint


class ErrandTarget(Struct):
    topic: str
    partition: int
    letters: int


class ErrandAnswer(Struct):
    """`status` is running, completed, cancelled or failed; `settled` grows while it runs."""

    task: str
    kind: str
    status: str
    settled: int
    skipped: int
    started_ms: int
    ended_ms: int | None
    reason: str | None
    targets: list[ErrandTarget]


class ErrandsAnswer(Struct):
    tasks: list[ErrandAnswer]


def errand_answer(errand: BackgroundJob) -> ErrandAnswer:
    targets = [
        ErrandTarget(where.topic, where.partition, count)
        for where, count in sorted(errand.targets.items())
    ]
    return ErrandAnswer(
        errand.name,
        errand.kind,
        errand.status,
        errand.settled,
        errand.skipped,
        errand.started_ms,
        errand.ended_ms,
        errand.reason,
        targets,
    )


async def list_tasks(gateway: Gateway, request: Request) -> Response:
    found = gateway.background_jobs.of(_topic(gateway, request))
    return json_answer(ErrandsAnswer([errand_answer(one) for one in found]))


async def show_task(gateway: Gateway, request: Request) -> Response:
    topic = _topic(gateway, request)
    return json_answer(
        errand_answer(gateway.background_jobs.find(topic, request.path_params["task"]))
    )


async def cancel_task(gateway: Gateway, request: Request) -> Response:
    topic = _topic(gateway, request)
    return json_answer(
        errand_answer(await gateway.background_jobs.cancel(topic, request.path_params["task"]))
    )


def _topic(gateway: Gateway, request: Request) -> str:
    """The topic of dead letters, for whoever may read it."""
    name: str = request.path_params["name"]
    require_topic(gateway.ctx, principal_of(request), Operation.READ, name)
    return name


ENDPOINTS = (
    RestEndpoint(
        "GET",
        "/dlq/{name}/tasks",
        "list redrives that run or ran in the background at this node, the newest first",
        list_tasks,
        answer=ErrandsAnswer,
        refusals=(403,),
    ),
    RestEndpoint(
        "GET",
        "/dlq/{name}/tasks/{task}",
        "how far a redrive in the background is",
        show_task,
        answer=ErrandAnswer,
        refusals=(403, 404),
    ),
    RestEndpoint(
        "DELETE",
        "/dlq/{name}/tasks/{task}",
        "stop a redrive in the background, between two transactions",
        cancel_task,
        answer=ErrandAnswer,
        refusals=(403, 404),
    ),
)
