"""Row of the route table: method, path, handler and documentation.

The application, the landing page, OpenAPI and the reference are made from these rows
(`gateway.rest.route_table`). A route module lists its rows with their handlers.
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
    """Query parameter; path parameters follow from the path."""

    name: str
    meaning: str
    kind: str = "string"
    """`string`, `integer` or `boolean`."""
    default: str | int | bool | None = None
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class RestEndpoint:
    """Route of the REST API."""

    method: str
    path: str
    summary: str
    """One-line description."""
    handler: Handler
    parameters: tuple[Parameter, ...] = ()
    body: Any = None
    """Type of the request body; None: no body."""
    answer: Any = None
    """Type of the response; None: no body, or not JSON."""
    status: int = 200
    media_type: str = "application/json"
    description: str = ""
    refusals: tuple[int, ...] = ()
    """Documented error statuses."""

    @property
    def tag(self) -> str:
        """Section of the documentation that lists the route."""
        return self.path.split("/")[1]
