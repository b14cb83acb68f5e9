"""The columns of the route table: what a row of `routes.py` says about an API."""

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class Stage(enum.Enum):
    """Whether the next request of a connection waits for this one's reply."""

    ORDERED = "ordered"
    PIPELINED = "pipelined"


class ResourceType(enum.IntEnum):
    """Kafka's resource types, by Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Operation(enum.IntEnum):
    """Kafka's ACL operations, by Kafka's numbers."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


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
    stage: Stage = Stage.ORDERED
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
