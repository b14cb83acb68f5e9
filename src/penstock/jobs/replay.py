"""The job `replay`: records of an archive back into a topic, by time, key or condition.

Key, value, headers and timestamp stay as they were. A partition's records go in the order of
their offsets, and to the partition of the same number where the target has it; otherwise keys
decide. All of it is seen at once or not at all, in one transaction for each task. With a name,
a replay that was interrupted between two commits and is run again writes only what is missing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F

from penstock.jobs.archive import read_archive
from penstock.jobs.inputs import chosen
from penstock.spark.option_values import OptionError


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Which records."""

    from_ms: int | None = None
    until_ms: int | None = None
    key: str | None = None
    where: str | None = None


def replay_archive(
    spark: Any,
    *,
    cluster: Mapping[str, str],
    root: str,
    topic: str,
    to: str,
    partitions: int,
    choice: RecordFilter,
    name: str | None = None,
    approve: Callable[[int], None] = lambda count: None,
) -> int:
    """How many records went. `partitions` is how many the target has; `approve` may raise."""
    if partitions < 1:
        raise OptionError(f"topic {to!r} has no partitions")
    rows = chosen(
        read_archive(spark, root, [topic]),
        from_ms=choice.from_ms,
        until_ms=choice.until_ms,
        key=choice.key,
        where=choice.where,
    )
    count = int(rows.count())
    if not count:
        return 0
    approve(count)
    there = int(rows.agg(F.max("partition")).first()[0]) + 1
    keeps = there <= partitions
    own = F.col("partition") if keeps else F.lit(None).cast("int")
    # One task for each partition, so that its records go in order and in one transaction.
    outgoing = (
        rows.repartition(there, F.col("partition"))
        .sortWithinPartitions("partition", "offset")
        .select("key", "value", "headers", "timestamp", own.alias("partition"))
    )
    writer = (
        outgoing.write.format("penstock")
        .options(**cluster, topic=to, delivery="exactly-once", includeTimestamp="true")
        .mode("append")
    )
    if name is not None:
        writer = writer.option("txnAppId", f"replay.{name}").option("txnVersion", 0)
    writer.save()
    return count
