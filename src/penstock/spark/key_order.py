"""Order of the records of a key, also if the key is in several partitions of its topic.

A key moves to another partition when its topic gets more partitions, so partition numbers say
nothing about order. The last record of a key is decided in two steps:

1. Within a partition, by offset: Kafka's order, also of late data.
2. Between the last records of the partitions, by timestamp. Only these last records count, because
   compaction may have deleted the others at any time.

Equal timestamps and different values in step 2 cannot be decided. `ties` then fails the job or
takes the record of the partition with the higher number, to which most keys move when a topic
grows.
"""

from typing import Any, Final

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from penstock.spark.option_values import OptionError

FAIL: Final = "fail"
HIGHER_PARTITION: Final = "higher-partition"
TIES: Final = (FAIL, HIGHER_PARTITION)
UNDECIDED: Final = "UndecidedOrder"
"""Name in the error of a tie, by which stages recognize it."""


def check_ties(ties: str) -> str:
    if ties not in TIES:
        raise OptionError(f"ties must be one of {', '.join(TIES)}, not {ties!r}")
    return ties


def last_of_each_partition(
    rows: Any, key: str = "key", partition: str = "partition", offset: str = "offset"
) -> Any:
    """Keeps the last record of each key and partition.

    Exchanges rows by key only, so that `mark_newest` needs no further exchange.
    """
    by_offset = Window.partitionBy(key, partition).orderBy(F.desc(offset))
    ranked = rows.repartition(key).withColumn("_rank", F.row_number().over(by_offset))
    return ranked.filter("_rank = 1").drop("_rank")


def mark_newest(
    rows: Any,
    into: str,
    *,
    topic: str,
    ties: str,
    key: str = "key",
    partition: str = "partition",
    offset: str = "offset",
    timestamp: str = "timestamp",
    digest: str = "digest",
) -> Any:
    """Adds a boolean column, true for the newest of a key's rows from `last_of_each_partition`.

    Rows with the same `digest` have the same value. Rows without timestamp are the oldest.
    """
    by_time = Window.partitionBy(key).orderBy(F.col(timestamp).desc_nulls_last(), F.desc(partition))
    ranked = rows.withColumn(into, F.row_number().over(by_time) == 1)
    if ties == HIGHER_PARTITION:
        return ranked
    same_time = (
        Window.partitionBy(key)
        .orderBy(F.col(timestamp).desc_nulls_last())
        .rangeBetween(Window.currentRow, Window.currentRow)
    )
    is_tied = F.col(into) & (F.min(digest).over(same_time) != F.max(digest).over(same_time))
    message = F.concat(
        F.lit(f"{UNDECIDED}: {topic}["),
        F.col(partition).cast("string"),
        F.lit("] has a record at offset "),
        F.col(offset).cast("string"),
        F.lit(
            " whose key is in another partition, too, with the same timestamp and another value, "
            "so the newer one is unknown; write the key again, or set ties to higher-partition"
        ),
    )
    return (
        ranked.withColumn("_is_tied", is_tied)
        .filter(F.when(F.col("_is_tied"), F.raise_error(message).cast("boolean")).otherwise(True))
        .drop("_is_tied")
    )


def last_of_each_key(rows: Any, *, topic: str, ties: str) -> Any:
    """Keeps the last record of each key, from rows with the columns of a topic."""
    last = last_of_each_partition(rows).withColumn("digest", F.xxhash64("value"))
    marked = mark_newest(last, "_is_newest", topic=topic, ties=ties)
    return marked.filter("_is_newest").drop("_is_newest", "digest")


def order_within_key(
    key: str = "key", partition: str = "partition", offset: str = "offset", at: str = "timestamp"
) -> Any:
    """Column to sort all records of a key by, before partition and offset.

    The newest timestamp of the key in its partition so far: keeps the order within a partition, and
    merges partitions by time. Equal ones are in the order of partition numbers.
    """
    before = (
        Window.partitionBy(key, partition)
        .orderBy(offset)
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return F.max(at).over(before)
