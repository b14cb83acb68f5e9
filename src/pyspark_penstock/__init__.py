"""How Spark finds `format("penstock")`: it looks for packages named `pyspark_*` by itself.

Nothing else belongs here; the source is in `penstock.spark`.
"""

from penstock.spark.source.data_source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
