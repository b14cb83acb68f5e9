"""Reading requests, waiting, and answering with JSON, for the handlers of all routes.

Values are checked here; errors name the allowed ones. A body is decoded as the type that its route
declares. A waiting request is cancelled when its client disconnects.
"""

import asyncio
import re
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from penstock.base.errors import ErrorCode, Refused
from penstock.gateway.core.permissions import Principal
from penstock.gateway.http.forwarded import PEER, connected_from
from penstock.gateway.http.problems import CLIENT_GONE, PRINCIPAL
from penstock.security.acl_types import ANONYMOUS

T = TypeVar("T")
BAD_REQUEST = 400
INTEGER_CHARS_MAX = 20
CLIENT_ID = "x-client-id"
CLIENT_ID_CHARS_MAX = 249
APP_ID = re.compile(r"(?:^|\s)app/(\S+)")


def principal_of(request: Request) -> Principal:
    """Returns a request's principal and client."""
    scope = request.scope
    return Principal(scope.get(PRINCIPAL, ANONYMOUS), peer_of(scope), client_id_of(scope))


def peer_of(scope: Scope) -> str:
    """Returns a request's client address, as set by `forwarded`."""
    peer: str | None = scope.get(PEER)
    return connected_from(scope) if peer is None else peer


def client_id_of(scope: Scope) -> str:
    """Returns the client id: the header `x-client-id`, or an AWS SDK's app id."""
    headers = Headers(scope=scope)
    given = headers.get(CLIENT_ID)
    if given is None:
        found = APP_ID.search(headers.get("user-agent", ""))
        given = found[1] if found else ""
    return given[:CLIENT_ID_CHARS_MAX]


def json_answer(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def no_content() -> Response:
    return Response(status_code=204)


async def read_json(request: Request, kind: type[T]) -> T:
    """Decodes the body as `kind`; malformed JSON is a 400, an invalid value a 422."""
    return parse_json(await request.body(), kind)


def parse_json(body: bytes, kind: type[T]) -> T:
    if not body:
        raise HTTPException(BAD_REQUEST, "the request body is empty: send JSON")
    try:
        return msgspec.json.decode(utf8(body), type=kind)
    except msgspec.ValidationError as error:
        raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HTTPException(BAD_REQUEST, f"the request body is not valid JSON: {error}") from None


def utf8(body: bytes) -> bytes:
    """Checks that JSON is UTF-8, also in raw values that are not decoded.

    Raises UnicodeDecodeError.
    """
    if not body.isascii():
        body.decode()
    return body


def text(request: Request, name: str, default: str | None = None) -> str:
    value = request.query_params.get(name, default)
    if value is None or (value == "" and default is None):
        raise Refused(ErrorCode.INVALID_REQUEST, f"missing parameter {name}: it is required")
    return value


def optional_text(request: Request, name: str) -> str | None:
    return request.query_params.get(name)


def integer(request: Request, name: str, default: int, low: int, high: int) -> int:
    value = optional_integer(request, name, low, high)
    return default if value is None else value


def optional_integer(request: Request, name: str, low: int, high: int) -> int | None:
    value = request.query_params.get(name)
    if value is None:
        return None
    digits = value.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(value) <= INTEGER_CHARS_MAX
    if not is_number or not low <= int(value) <= high:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"invalid {name} {value[:40]!r}: must be a number from {low} to {high}",
        )
    return int(value)


def flag(request: Request, name: str, default: bool = False) -> bool:
    value = request.query_params.get(name)
    if value is None:
        return default
    if value not in ("true", "false"):
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"invalid {name} {value[:40]!r}: must be true or false"
        )
    return value == "true"


def choice(request: Request, name: str, *values: str) -> str:
    """Returns a parameter that is one of `values`; the first is the default."""
    value = request.query_params.get(name, values[0])
    if value not in values:
        allowed = " or ".join(values)
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"invalid {name} {value[:40]!r}: must be {allowed}"
        )
    return value


class WaitingRequests:
    """Waiting requests, cancelled when the server stops."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def add(self, task: "asyncio.Task[Any]") -> None:
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(task, None))

    def end(self) -> None:
        for task in list(self._tasks):
            task.cancel()


class ClientWatch:
    """Cancels a request's work when its client disconnects or the server stops.

    It watches from `start` on, so that requests that do not wait do not pay for it.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._gone: asyncio.Task[None] | None = None
        self._why: Exception | None = None

    async def __aenter__(self) -> "ClientWatch":
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelled_before = task.cancelling()
        return self

    def start(self) -> None:
        if self._gone is not None:
            return
        self._gone = asyncio.get_running_loop().create_task(_disconnect(self._request))
        waits: WaitingRequests = self._request.app.state.waits
        waits.add(self._gone)
        self._gone.add_done_callback(self._end)

    def _end(self, gone: "asyncio.Task[None]") -> None:
        if gone.cancelled():
            why = "this node is stopping: retry on another one"
            self._why = Refused(ErrorCode.LEADER_NOT_AVAILABLE, why)
        else:
            self._why = HTTPException(CLIENT_GONE, "the client has disconnected")
        self._task.cancel()

    async def __aexit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._gone is None:
            return
        self._gone.remove_done_callback(self._end)
        self._gone.cancel()
        await asyncio.gather(self._gone, return_exceptions=True)
        if self._why is None:
            return
        is_ours = self._task.uncancel() <= self._cancelled_before
        if is_ours and isinstance(error, asyncio.CancelledError):
            raise self._why from error


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Runs work that may take long; cancels it if the client disconnects or the server stops."""
    async with ClientWatch(request) as client:
        client.start()
        return await work


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
