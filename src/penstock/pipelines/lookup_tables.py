"""Lookup tables of stages as DataFrames.

A stage that rejects rows reads its tables in every branch, and a changing table must be the same in
all of them. Otherwise a row could be lost: one branch drops it as unknown, another one as known.
Spark runs an identical exchange once for all branches, but never considers two reads of a data
source identical. So `Latest` does not use the data source: a few rows of numbers go through
`mapInArrow`, which reads the partitions of each number; Spark recognizes that as identical. The
topic is read when the batch runs, up to its end at that time.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.pipelines.endpoints import Latest, Stored, Table
from penstock.spark.connection import blocking_client
from penstock.spark.key_order import last_of_each_key
from penstock.spark.range_planning import Range
from penstock.spark.settings import ReadSettings, read_settings
from penstock.spark.source.data_source import ranges_of
from penstock.spark.source.rows import read_all, schema_of

READERS: Final = 4
"""Tasks that read a topic; with a single one Spark would not use an exchange."""


def load_table(spark: Any, table: Table, options: Mapping[str, str]) -> Any:
    """DataFrame of a table; `options` are those of the cluster."""
    if isinstance(table, Stored):
        reader = spark.read.format(table.format)
        return (reader.schema(table.schema) if table.schema else reader).load(table.path)
    raw = _read_topic(spark, table, options)
    last = last_of_each_key(raw.filter("key is not null"), topic=table.topic, ties=table.ties)
    parsed = F.from_json(F.col("value").cast("string"), StructType.fromDDL(table.schema))
    return last.filter("value is not null").select(parsed.alias("_row")).select("_row.*")


def _read_topic(spark: Any, table: Latest, options: Mapping[str, str]) -> Any:
    """DataFrame of all records of the topic, with the columns that their order needs."""
    asked = {
        **options,
        "subscribe": table.topic,
        "isolation.level": "read_committed",
        "columns": "key,value,partition,offset,timestamp",
    }
    settings = read_settings(asked, is_streaming=False)
    schema = schema_of(settings.columns)

    def read(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for row in batch.to_pylist():
                spans = _ranges_of_reader(settings, row["id"])
                yield from read_all(settings, schema, spans)

    return spark.range(0, READERS, 1, READERS).mapInArrow(read, schema)


def _ranges_of_reader(settings: ReadSettings, reader: int) -> list[Range]:
    """Current ranges of the partitions of one reader."""
    client = blocking_client(settings.access)
    spans = client.retry(lambda: ranges_of(client.cluster, settings))
    return [span for span in spans if span.partition % READERS == reader]
