"""Finds the route of a request by the first word of its path, instead of trying all of them.

Routes are many, and each costs a regular expression; most begin with a word of their own. Those
that begin with a parameter are tried last. Which of several that fit is taken, and what is answered
where only the method does not fit, is as in Starlette.
"""

from collections.abc import Iterable, Mapping

from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

CHOSEN = "penstock.route"


class Directory(BaseRoute):
    """One route that stands for all."""

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self.routes = list(routes)
        self._wild = [route for route in self.routes if _first_word(route) is None]
        words = dict.fromkeys(_first_word(route) for route in self.routes)
        self._by_word: Mapping[str, list[BaseRoute]] = {
            word: [route for route in self.routes if _first_word(route) == word] + self._wild
            for word in words
            if word is not None
        }

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http":
            return Match.NONE, {}
        word = scope["path"].split("/", 2)[1] if scope["path"].startswith("/") else ""
        partial: tuple[Match, Scope] = Match.NONE, {}
        for route in self._by_word.get(word, self._wild):
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


def _first_word(route: BaseRoute) -> str | None:
    """The word that a route's path begins with; None: a parameter, or something else."""
    if not isinstance(route, Route):
        return None
    word = route.path.split("/", 2)[1]
    return None if word.startswith("{") else word
