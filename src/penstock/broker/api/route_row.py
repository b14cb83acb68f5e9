"""Columns of the route table `routes`."""

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.security.acl_types import Operation, ResourceType

__all__ = ["Needs", "Operation", "ReplyOrder", "ResourceType", "Route"]


class ReplyOrder(enum.Enum):
    """Order of this request and the next one of a connection."""

    ORDERED = "ordered"
    """The next request waits for the reply."""
    PIPELINED = "pipelined"
    """If the reply comes later, the next request begins meanwhile."""
    PARALLEL = "parallel"
    """The next request does not wait for a coroutine either; ordered work is done before it."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Permission that the caller needs on each resource that the request names."""

    resource: ResourceType
    operation: Operation


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """One API: request, supported versions, handler, permission and order of replies."""

    request: Any
    response: Any
    versions: tuple[int, int]
    handler: Callable[..., Any]
    needs: Needs | None
    """None: allowed for all clients, even before authentication."""
    stage: ReplyOrder = ReplyOrder.ORDERED
    advertised: tuple[int, int] | None = None
    """Versions in ApiVersions, if they differ from the supported ones."""
    name: str = field(init=False)

    def __post_init__(self) -> None:
        declared: str = self.request.WIRE.name
        object.__setattr__(self, "name", declared.removesuffix("Request"))

    @property
    def key(self) -> int:
        key: int = self.request.WIRE.key
        return key
