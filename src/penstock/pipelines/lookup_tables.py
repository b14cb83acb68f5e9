"""Tables that stages look rows up in, as DataFrames.

A stage that turns rows away reads its tables in every branch, and a table that changes must be the
same to all of them: a row that one branch leaves out because it is not known and another one
because it is known would be gone. Spark runs an exchange once for all branches that have the same
one, but takes no two reads of a data source for the same. So `Latest` is not read by a data source:
a few rows of numbers go through `mapInArrow`, which reads what each stands for, and that Spark
knows to be the same. It is read when the batch runs, up to where the topic ends then.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from pyspark.sql.window import Window

from penstock.pipelines.endpoints import Latest, Stored, Table
from penstock.spark.connection import blocking_client
from penstock.spark.range_planning import Range
from penstock.spark.settings import ReadSettings, read_settings
from penstock.spark.source.data_source import ranges_of
from penstock.spark.source.rows import read_all, schema_of

READERS: Final = 4
"""Tasks that read a topic together. With one alone there would be no exchange."""


def table_of(spark: Any, table: Table, options: Mapping[str, str]) -> Any:
    """The table; `options` say where the cluster is."""
    if isinstance(table, Stored):
        reader = spark.read.format(table.format)
        return (reader.schema(table.schema) if table.schema else reader).load(table.path)
    raw = _changes(spark, table, options)
    newest = Window.partitionBy("key").orderBy(F.desc("partition"), F.desc("offset"))
    last = raw.withColumn("_rank", F.row_number().over(newest)).filter("_rank = 1")
    parsed = F.from_json(F.col("value").cast("string"), StructType.fromDDL(table.schema))
    return last.filter("value is not null").select(parsed.alias("_row")).select("_row.*")


def _changes(spark: Any, table: Latest, options: Mapping[str, str]) -> Any:
    """Every record of the topic: key, value, partition and offset."""
    asked = {
        **options,
        "subscribe": table.topic,
        "isolation.level": "read_committed",
        "columns": "key,value,partition,offset",
    }
    settings = read_settings(asked, is_streaming=False)
    schema = schema_of(settings.columns)

    def read(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for row in batch.to_pylist():
                spans = _share(settings, row["id"])
                yield from read_all(settings, schema, spans)

    return spark.range(0, READERS, 1, READERS).mapInArrow(read, schema)


def _share(settings: ReadSettings, reader: int) -> list[Range]:
    """One reader's part of the topic as it is now."""
    client = blocking_client(settings.access)
    spans = client.retry(lambda: ranges_of(client.cluster, settings))
    return [span for span in spans if span.partition % READERS == reader]
