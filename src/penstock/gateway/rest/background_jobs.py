"""Background jobs: progress and cancellation of redrives.

`POST /dlq/{name}/redrive` with `"background": true` starts a job and returns at once
(`dead_letters`). The API calls a job a task.
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


class JobTarget(Struct):
    topic: str
    partition: int
    letters: int


class JobAnswer(Struct):
    """`status` is running, completed, cancelled or failed; `settled` grows while it runs."""

    task: str
    kind: str
    status: str
    settled: int
    skipped: int
    started_ms: int
    ended_ms: int | None
    reason: str | None
    targets: list[JobTarget]


class JobsAnswer(Struct):
    tasks: list[JobAnswer]


def job_answer(job: BackgroundJob) -> JobAnswer:
    targets = [
        JobTarget(where.topic, where.partition, count)
        for where, count in sorted(job.targets.items())
    ]
    return JobAnswer(
        job.name,
        job.kind,
        job.status,
        job.settled,
        job.skipped,
        job.started_ms,
        job.ended_ms,
        job.reason,
        targets,
    )


async def list_tasks(gateway: Gateway, request: Request) -> Response:
    found = gateway.background_jobs.of(_topic(gateway, request))
    return json_answer(JobsAnswer([job_answer(one) for one in found]))


async def show_task(gateway: Gateway, request: Request) -> Response:
    topic = _topic(gateway, request)
    return json_answer(job_answer(gateway.background_jobs.find(topic, request.path_params["task"])))


async def cancel_task(gateway: Gateway, request: Request) -> Response:
    topic = _topic(gateway, request)
    return json_answer(
        job_answer(await gateway.background_jobs.cancel(topic, request.path_params["task"]))
    )


def _topic(gateway: Gateway, request: Request) -> str:
    """Returns the name of the dead-letter topic, which the caller must be allowed to read."""
    name: str = request.path_params["name"]
    require_topic(gateway.ctx, principal_of(request), Operation.READ, name)
    return name


ENDPOINTS = (
    RestEndpoint(
        "GET",
        "/dlq/{name}/tasks",
        "list running and finished background redrives of this node, newest first",
        list_tasks,
        answer=JobsAnswer,
        refusals=(403,),
    ),
    RestEndpoint(
        "GET",
        "/dlq/{name}/tasks/{task}",
        "show the progress of a background redrive",
        show_task,
        answer=JobAnswer,
        refusals=(403, 404),
    ),
    RestEndpoint(
        "DELETE",
        "/dlq/{name}/tasks/{task}",
        "cancel a background redrive, between two transactions",
        cancel_task,
        answer=JobAnswer,
        refusals=(403, 404),
    ),
)
