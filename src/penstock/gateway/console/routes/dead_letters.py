"""The workbench of dead letters: redrives that can be watched, stopped and undone.

Looking at letters is what the HTTP routes below `/dlq` do; the pages use those.
"""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from penstock.base.errors import ErrorCode, Refused
from penstock.gateway.console.console import Console
from penstock.gateway.console.redrives import Redrive
from penstock.gateway.console.route_row import ConsoleRow
from penstock.gateway.console.visibility import sight_of
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
    sight = sight_of(console.ctx, request)
    found = [_answer(one) for one in console.redrives.all() if sight.topic(one.errand.topic)]
    return json_answer(RedrivesAnswer(found))


async def start(console: Console, request: Request) -> Response:
    body = await read_json(request, RedriveBody)
    if body.rate is not None and not body.rate > 0:
        raise Refused(ErrorCode.INVALID_REQUEST, "rate is above 0")
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
    """A redrive of letters that the caller may read."""
    redrive = console.redrives.find(request.path_params["id"])
    console.browser.topic(principal_of(request), redrive.errand.topic)
    return redrive


def _answer(one: Redrive) -> RedriveAnswer:
    errand = one.errand
    return RedriveAnswer(
        errand.name,
        errand.topic,
        one.who,
        one.to,
        one.rate,
        one.state,
        errand.started_ms,
        errand.ended_ms,
        one.total,
        errand.settled,
        errand.skipped,
        one.taken_back,
        one.can_undo,
        errand.reason or "",
    )


ROWS = (
    ConsoleRow("GET", "/redrives", "redrives that this node's console started", list_redrives),
    ConsoleRow("POST", "/dlq/{name}/redrives", "begin to send letters back", start),
    ConsoleRow("POST", "/redrives/{id}/stop", "stop a redrive: the rest stays", stop),
    ConsoleRow("POST", "/redrives/{id}/undo", "take back what was not delivered yet", undo),
)
