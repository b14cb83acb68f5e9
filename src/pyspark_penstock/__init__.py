"""Registers `format("penstock")`: Spark discovers data sources in packages named `pyspark_*`.

Only the registration belongs here; the source is in `penstock.spark`.
"""

from penstock.spark.source.data_source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
