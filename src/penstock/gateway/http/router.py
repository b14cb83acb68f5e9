"""Finds the route of a request by the first segment of its path, instead of trying all routes.

There are many routes, and each costs a regular expression; most begin with a constant segment.
Routes that begin with a parameter are tried last. Precedence, and the response if only the method
does not match, are as in Starlette.
"""

from collections.abc import Iterable, Mapping

from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

CHOSEN = "penstock.route"


class RouteIndex(BaseRoute):
    """Single route that dispatches to all others."""

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self.routes = list(routes)
        self._wild = [route for route in self.routes if _first_segment(route) is None]
        segments = dict.fromkeys(_first_segment(route) for route in self.routes)
        self._by_segment: Mapping[str, list[BaseRoute]] = {
            segment: [route for route in self.routes if _first_segment(route) == segment]
            + self._wild
            for segment in segments
            if segment is not None
        }

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http":
            return Match.NONE, {}
        segment = scope["path"].split("/", 2)[1] if scope["path"].startswith("/") else ""
        partial: tuple[Match, Scope] = Match.NONE, {}
        for route in self._by_segment.get(segment, self._wild):
            match, found = route.matches(scope)
            if match is Match.NONE:
                continue
            found[CHOSEN] = route
            if match is Match.FULL:
                return match, found
            if partial[0] is Match.NONE:
                partial = match, found
        return partial

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope[CHOSEN].handle(scope, receive, send)


def _first_segment(route: BaseRoute) -> str | None:
    """Returns the constant first segment of a route's path; None if it is a parameter."""
    if not isinstance(route, Route):
        return None
    segment = route.path.split("/", 2)[1]
    return None if segment.startswith("{") else segment
