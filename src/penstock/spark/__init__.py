"""Penstock for Spark: the data source and sink `penstock`, and `read_stream`. No jar needed.

A client only: it talks to brokers over the wire, Penstock's or Kafka's. Spark runs it in many
short-lived processes (planner, tasks, committer), so nothing here relies on state that another
process has set; what must survive lives in Spark's checkpoint or in the broker.

`format("penstock")` is found by itself once the package is installed, through `pyspark_penstock`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.ranged import read_stream
    from penstock.spark.source import PenstockDataSource

__all__ = ["PenstockDataSource", "read_stream"]

_HOMES = {
    "PenstockDataSource": "penstock.spark.source",
    "read_stream": "penstock.spark.ranged",
}


def __getattr__(name: str) -> Any:
    """Loads PySpark only when something that needs it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
