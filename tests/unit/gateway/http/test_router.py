"""Routes indexed by their first segment: same results as trying all in turn."""

import asyncio

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Match, Route
from starlette.types import Message, Scope

from penstock.gateway.http.router import CHOSEN, RouteIndex

PATHS = [
    ("GET", "/"),
    ("POST", "/"),
    ("GET", "/topics"),
    ("POST", "/topics"),
    ("GET", "/topics/{name}"),
    ("POST", "/topics/{name}/ack"),
    ("POST", "/{account:int}/{queue}"),
    ("GET", "/{anything}"),
]


async def answer(request: Request) -> Response:
    return PlainTextResponse("ok")


ROUTES = [Route(path, answer, methods=[method]) for method, path in PATHS]


def one_by_one(scope: Scope) -> tuple[Match, Route | None]:
    found: tuple[Match, Route | None] = Match.NONE, None
    for route in ROUTES:
        match, _ = route.matches(scope)
        if match is Match.FULL:
            return match, route
        if match is Match.PARTIAL and found[1] is None:
            found = match, route
    return found


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
@pytest.mark.parametrize(
    "path", ["/", "", "//", "/topics", "/topics/a", "/topics/a/ack", "/12/q", "/x/q", "/other"]
)
def test_index_matches_the_same_route_as_starlette(method: str, path: str) -> None:
    scope: Scope = {"type": "http", "method": method, "path": path, "root_path": ""}
    match, found = RouteIndex(ROUTES).matches(scope)
    assert (match, found.get(CHOSEN)) == one_by_one(scope)


def test_matched_route_handles_the_request() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def main() -> None:
        directory = RouteIndex(ROUTES)
        scope: Scope = {"type": "http", "method": "GET", "path": "/topics", "headers": []}
        scope.update(directory.matches(scope)[1])
        await directory.handle(scope, receive, send)

    asyncio.run(main())
    assert sent[0]["status"] == 200
