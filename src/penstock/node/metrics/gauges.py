"""One metric that is read at each scrape: a row of the tables in `node_metrics`."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.metrics import Histogram, Sample

if TYPE_CHECKING:
    from penstock.node.node import Node


class GaugeReading(NamedTuple):
    """One metric of a node. A plain number, and a histogram, has no labels."""

    name: str
    kind: str
    help: str
    read: Callable[["Node"], "float | Histogram | Iterable[Sample]"]
    labels: tuple[str, ...] = ()


__all__ = ["GaugeReading", "Sample"]
