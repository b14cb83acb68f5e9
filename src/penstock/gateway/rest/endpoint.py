"""What a row of the table of routes says: method, path, who answers, and what is documented.

The application, the landing page, OpenAPI and the reference are all made from such rows
(`gateway.rest.route_table`). A route module is a list of them with their handlers.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.core.gateway import Gateway

Handler: TypeAlias = Callable[[Gateway, Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter in the query; those in the path are known from the path."""

    name: str
    meaning: str
    kind: str = "string"
    """string, integer or boolean."""
    default: str | int | bool | None = None
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class RestEndpoint:
    """One route."""

    method: str
    path: str
    summary: str
    """One line."""
    handler: Handler
    parameters: tuple[Parameter, ...] = ()
    body: Any = None
    """The type that the body is read as; None: there is none."""
    answer: Any = None
    """The type of what is answered; None: nothing, or no JSON."""
    status: int = 200
    media_type: str = "application/json"
    description: str = ""
    refusals: tuple[int, ...] = ()
    """The statuses of problems worth knowing about."""

    @property
    def tag(self) -> str:
        """The family that documentation lists it under."""
        return self.path.split("/")[1]
