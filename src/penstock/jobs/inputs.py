"""What a job reads: a topic, or an archive of one, in the same columns; and choosing records.

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
class Side:
    """A topic, here or in an archive."""

    topic: str
    archive: str | None = None

    def __str__(self) -> str:
        return self.topic if self.archive is None else f"{self.topic} in {self.archive}"


def parse_side(text: str) -> Side:
    if not text.startswith(_ARCHIVE):
        return Side(text)
    root, colon, topic = text.removeprefix(_ARCHIVE).rpartition(":")
    if not colon or not root or "/" in topic:
        raise OptionError(f"{text!r} is not archive:FOLDER:TOPIC")
    return Side(topic, root)


def read_side(
    spark: Any,
    side: Side,
    cluster: Mapping[str, str],
    *,
    columns: tuple[str, ...] = COLUMNS,
    **options: str,
) -> Any:
    """Its committed records, as they are now."""
    if side.archive is not None:
        return read_archive(spark, side.archive, [side.topic]).select(*columns)
    return (
        spark.read.format("penstock")
        .options(**cluster, subscribe=side.topic, columns=",".join(columns))
        .option("isolation.level", "read_committed")
        .options(**options)
        .load()
    )


def chosen(
    rows: Any,
    *,
    from_ms: int | None = None,
    until_ms: int | None = None,
    key: str | None = None,
    where: str | None = None,
) -> Any:
    """Records of a time, of a key, and for which a condition of SQL is true.

    In the condition `key` and `value` are text; what comes out has them as they were.
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
