"""Penstock for Spark: the data source and sink `penstock`, and functions beside it. No jar needed.

`open_session` opens a session tuned for small batches. `read_stream` and `read_queue` read a topic
or a queue, `decode` and `encode` use a schema registry, `dead_letters` and `route` handle bad rows,
`upsert` writes results that change, `source_progress` counts records.

Only a client: it speaks Kafka's protocol to Penstock or Kafka brokers. Spark runs it in many
short-lived processes (planner, tasks, committer), so nothing here relies on state that another
process has set. State that must survive lives in Spark's checkpoint or in the broker.

Spark finds `format("penstock")` by itself once the package is installed, through
`pyspark_penstock`.
"""

from typing import TYPE_CHECKING, Any

if ".zip/" in __file__ or ".egg/" in __file__:
    raise ImportError(
        "Penstock cannot be imported from an archive of --py-files, because some of its packages "
        "are compiled: run `penstock spark pack` and pass its archive in spark.archives, see "
        "docs/how-to/spark-cluster.md"
    )

if TYPE_CHECKING:
    from penstock.spark.dead_letters import dead_letters, route
    from penstock.spark.progress import source_progress
    from penstock.spark.schemas.dataframes import decode, encode
    from penstock.spark.schemas.schema_cache import RegistryAddress
    from penstock.spark.session import open_session
    from penstock.spark.sink.upsert import upsert
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
    "source_progress",
    "upsert",
]

_MODULES = {
    "PenstockDataSource": "penstock.spark.source.data_source",
    "RegistryAddress": "penstock.spark.schemas.schema_cache",
    "dead_letters": "penstock.spark.dead_letters",
    "decode": "penstock.spark.schemas.dataframes",
    "encode": "penstock.spark.schemas.dataframes",
    "open_session": "penstock.spark.session",
    "read_queue": "penstock.spark.source.ranged_stream",
    "read_stream": "penstock.spark.source.ranged_stream",
    "route": "penstock.spark.dead_letters",
    "source_progress": "penstock.spark.progress",
    "upsert": "penstock.spark.sink.upsert",
}


def __getattr__(name: str) -> Any:
    """Imports PySpark only when an exported name that needs it is used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)
