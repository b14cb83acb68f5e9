"""Penstock for Spark: the data source and sink `penstock`, and functions beside it. No jar needed.

`open_session` opens a session that is quick with small batches, `read_stream` and `read_queue` read
a topic or a queue, `decode` and `encode` know schema registries, `dead_letters` and `route` see to
rows that are bad.

A client only: it talks to brokers over the wire, Penstock's or Kafka's. Spark runs it in many
short-lived processes (planner, tasks, committer), so nothing here relies on state that another
process has set; what must survive lives in Spark's checkpoint or in the broker.

`format("penstock")` is found by itself once the package is installed, through `pyspark_penstock`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.dead_letters import dead_letters, route
    from penstock.spark.schemas.dataframes import decode, encode
    from penstock.spark.schemas.schema_cache import RegistryAddress
    from penstock.spark.session import open_session
    from penstock.spark.source.data_source import PenstockDataSource
    from penstock.spark.source.ranged_stream import read_queue, read_stream

__all__ = [
    "PenstockDataSource",
    "RegistryAddress",
    "dead_letters",
    "decode",
    "encode",
    "open_session",
    "read_queue",
    "read_stream",
    "route",
]

_HOMES = {
    "PenstockDataSource": "penstock.spark.source.data_source",
    "RegistryAddress": "penstock.spark.schemas.schema_cache",
    "dead_letters": "penstock.spark.dead_letters",
    "decode": "penstock.spark.schemas.dataframes",
    "encode": "penstock.spark.schemas.dataframes",
    "open_session": "penstock.spark.session",
    "read_queue": "penstock.spark.source.ranged_stream",
    "read_stream": "penstock.spark.source.ranged_stream",
    "route": "penstock.spark.dead_letters",
}


def __getattr__(name: str) -> Any:
    """Loads PySpark only when something that needs it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
