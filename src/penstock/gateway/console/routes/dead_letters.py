"""Redrives of dead letters: start, list, stop, undo.

To list dead letters, the pages use the REST routes below `/dlq`.
"""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.base.errors import ErrorCode, Refused
from penstock.gateway.console.console import Console, ConsoleRow
from penstock.gateway.console.redrives import Redrive
from penstock.gateway.console.visibility import visibility_of
from penstock.gateway.http.request_io import WaitingRequests, json_answer, principal_of, read_json
from penstock.gateway.rest.dead_letters import RedriveBody, filter_of, payload_of

ACCEPTED = 202


class RedriveAnswer(Struct):
    id: str
    topic: str
    who: str
    to: str | None
    rate: float | None
    state: str
    started_ms: int
    ended_ms: int | None
    total: int
    sent: int
    skipped: int
    taken_back: int
    can_undo: bool
    error: str


class RedrivesAnswer(Struct):
    redrives: list[RedriveAnswer]


async def list_redrives(console: Console, request: Request) -> Response:
    visibility = visibility_of(console.ctx, request)
    found = [_answer(one) for one in console.redrives.all() if visibility.topic(one.job.topic)]
    return json_answer(RedrivesAnswer(found))


async def start(console: Console, request: Request) -> Response:
    body = await read_json(request, RedriveBody)
    if body.rate is not None and not body.rate > 0:
        raise Refused(ErrorCode.INVALID_REQUEST, f"invalid rate {body.rate}: must be above 0")
    redrive, task = await console.redrives.start(
        principal_of(request),
        request.path_params["name"],
        filter_of(body),
        to=body.to or None,
        limit=body.limit,
        rate=body.rate,
        payload=payload_of(body),
    )
    waits: WaitingRequests = request.app.state.waits
    waits.add(task)
    return json_answer(_answer(redrive), ACCEPTED)


async def stop(console: Console, request: Request) -> Response:
    redrive = _own(console, request)
    await console.redrives.stop(redrive)
    return json_answer(_answer(redrive))


async def undo(console: Console, request: Request) -> Response:
    redrive = _own(console, request)
    await console.redrives.undo(principal_of(request), redrive)
    return json_answer(_answer(redrive))


def _own(console: Console, request: Request) -> Redrive:
    """Returns a redrive; refuses unless the caller may read its dead letters."""
    redrive = console.redrives.find(request.path_params["id"])
    console.browser.topic(principal_of(request), redrive.job.topic)
    return redrive


def _answer(one: Redrive) -> RedriveAnswer:
    job = one.job
    return RedriveAnswer(
        job.name,
        job.topic,
        one.who,
        one.to,
        one.rate,
        one.state,
        job.started_ms,
        job.ended_ms,
        one.total,
        job.settled,
        job.skipped,
        one.taken_back,
        one.can_undo,
        job.reason or "",
    )


ROWS = (
    ConsoleRow("GET", "/redrives", "list redrives started in this node's console", list_redrives),
    ConsoleRow("POST", "/dlq/{name}/redrives", "start a redrive of dead letters", start),
    ConsoleRow("POST", "/redrives/{id}/stop", "stop a redrive", stop),
    ConsoleRow("POST", "/redrives/{id}/undo", "take back copies not delivered yet", undo),
)
