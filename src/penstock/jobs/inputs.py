"""Inputs of jobs: a topic or its archive, with the same columns, and filters of records.

`orders` is a topic, `archive:/data/archive:orders` is the topic orders in an archive.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import functions as F

from penstock.jobs.archive import read_archive
from penstock.spark.option_values import OptionError

COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_ARCHIVE: Final = "archive:"


@dataclass(frozen=True, slots=True)
class JobInput:
    """Topic in the cluster or in an archive."""

    topic: str
    archive: str | None = None

    def __str__(self) -> str:
        return self.topic if self.archive is None else f"{self.topic} in {self.archive}"


def parse_input(text: str) -> JobInput:
    if not text.startswith(_ARCHIVE):
        return JobInput(text)
    root, colon, topic = text.removeprefix(_ARCHIVE).rpartition(":")
    if not colon or not root or "/" in topic:
        raise OptionError(f"invalid input {text!r}: pass TOPIC or archive:FOLDER:TOPIC")
    return JobInput(topic, root)


def read_input(
    spark: Any,
    side: JobInput,
    cluster: Mapping[str, str],
    *,
    columns: tuple[str, ...] = COLUMNS,
    **options: str,
) -> Any:
    """Current committed records of an input."""
    if side.archive is not None:
        return read_archive(spark, side.archive, [side.topic]).select(*columns)
    return (
        spark.read.format("penstock")
        .options(**cluster, subscribe=side.topic, columns=",".join(columns))
        .option("isolation.level", "read_committed")
        .options(**options)
        .load()
    )


def filter_records(
    rows: Any,
    *,
    from_ms: int | None = None,
    until_ms: int | None = None,
    key: str | None = None,
    where: str | None = None,
) -> Any:
    """Filters records by time, key and SQL condition.

    The condition sees `key` and `value` as text; the result has them unchanged.
    """
    moment = F.unix_millis("timestamp")
    if from_ms is not None:
        rows = rows.filter(moment >= from_ms)
        if "date" in rows.columns:
            rows = rows.filter(F.col("date") >= F.to_date(F.timestamp_millis(F.lit(from_ms))))
    if until_ms is not None:
        rows = rows.filter(moment < until_ms)
        if "date" in rows.columns:
            rows = rows.filter(F.col("date") <= F.to_date(F.timestamp_millis(F.lit(until_ms))))
    if key is not None:
        rows = rows.filter(F.col("key") == F.lit(key.encode()))
    if where:
        names = rows.columns
        readable = rows.withColumns(
            {
                "_key": F.col("key"),
                "_value": F.col("value"),
                "key": F.col("key").cast("string"),
                "value": F.col("value").cast("string"),
            }
        ).filter(where)
        restored = readable.withColumns({"key": F.col("_key"), "value": F.col("_value")})
        rows = restored.select(*names)
    return rows
