"""One metric that is read when somebody looks: a row of the tables in `telemetry`."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from penstock.node.node import Node

Sample = tuple[tuple[str, ...], float]


class Reading(NamedTuple):
    """One metric of a node. A plain number has no labels."""

    name: str
    kind: str
    help: str
    read: Callable[["Node"], "float | Iterable[Sample]"]
    labels: tuple[str, ...] = ()
