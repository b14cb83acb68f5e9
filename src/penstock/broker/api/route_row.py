"""The columns of the route table: what a row of `routes.py` says about an API."""

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.security.acl_types import Operation, ResourceType

__all__ = ["Needs", "Operation", "ReplyOrder", "ResourceType", "Route"]


class ReplyOrder(enum.Enum):
    """Whether the next request of a connection waits for this one's reply."""

    ORDERED = "ordered"
    PIPELINED = "pipelined"
    """Those that answer later let the next one begin."""
    PARALLEL = "parallel"
    """Nor does the next one wait for a coroutine: what must be in order is done before that."""


@dataclass(frozen=True, slots=True)
class Needs:
    """The right a caller must have on each resource that the request names."""

    resource: ResourceType
    operation: Operation


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """One API: its request, the versions we speak, who answers, who may ask, and how it queues."""

    request: Any
    response: Any
    versions: tuple[int, int]
    handler: Callable[..., Any]
    needs: Needs | None
    """None: open to everyone, before authentication too."""
    stage: ReplyOrder = ReplyOrder.ORDERED
    advertised: tuple[int, int] | None = None
    """What ApiVersions says, where that differs from what we speak."""
    name: str = field(init=False)

    def __post_init__(self) -> None:
        declared: str = self.request.WIRE.name
        object.__setattr__(self, "name", declared.removesuffix("Request"))

    @property
    def key(self) -> int:
        key: int = self.request.WIRE.key
        return key
