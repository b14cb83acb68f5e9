"""Job `replay`: writes records of an archive to a topic, by time, key or condition.

Key, value, headers and timestamp stay unchanged. Records of a partition are written in offset
order, to the partition of the same number if the target has enough partitions, otherwise by key.
Each task writes one transaction, and all of them are committed together. A named replay that was
interrupted between two commits and is repeated writes only the missing records.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F

from penstock.jobs.archive import read_archive
from penstock.jobs.inputs import filter_records
from penstock.spark.option_values import OptionError


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Filter of archived records."""

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
    """Replays records to a topic with `partitions` partitions; returns their number.

    Calls `approve` with the number before it writes; `approve` may raise to cancel.
    """
    if partitions < 1:
        raise OptionError(f"topic {to!r} has no partitions")
    rows = filter_records(
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
    # One task per partition, so that its records are in order and in one transaction.
    output_rows = (
        rows.repartition(there, F.col("partition"))
        .sortWithinPartitions("partition", "offset")
        .select("key", "value", "headers", "timestamp", own.alias("partition"))
    )
    writer = (
        output_rows.write.format("penstock")
        .options(**cluster, topic=to, delivery="exactly-once", includeTimestamp="true")
        .mode("append")
    )
    if name is not None:
        writer = writer.option("txnAppId", f"replay.{name}").option("txnVersion", 0)
    writer.save()
    return count
