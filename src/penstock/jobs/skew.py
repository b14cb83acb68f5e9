"""Job `skew`: finds hot keys and overloaded partitions, and recommends salting.

Counts records and bytes by key and partition. A key is hot if it alone exceeds `HOT_SHARE` of a
partition's fair share. The recommendation is verified: the distribution with
`penstock.app.salting` is computed with the same functions that producers use.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import functions as F

from penstock.app.salting import BUCKETS_MAX, salted
from penstock.client.producer.partitioner import partition_for_key
from penstock.jobs import reports
from penstock.jobs.inputs import JobInput, read_input
from penstock.jobs.reports import Report

HOT_SHARE: Final = 0.5
KEYS_MAX: Final = 20
_SLACK: Final = 4
"""Buckets per fair share of a key: with fewer, several often hash to the same partition."""


@dataclass(slots=True)
class KeyShare:
    key: bytes
    records: int
    bytes: int
    share: float
    """Fraction of all records."""
    partition: int


@dataclass(slots=True)
class Skew:
    """Distribution of a topic's records, and recommended salting."""

    topic: str
    partitions: int
    records: int = 0
    keys: int = 0
    by_partition: list[int] = field(default_factory=list)
    hot: list[KeyShare] = field(default_factory=list)
    top: list[KeyShare] = field(default_factory=list)
    buckets: int = 0
    """Buckets per hot key; 0: salting is not needed."""
    salted: list[int] = field(default_factory=list)
    """Records by partition with salting."""

    @property
    def imbalance(self) -> float:
        """Size of the largest partition in fair shares: 1.0 is perfect."""
        return _imbalance(self.by_partition)

    @property
    def imbalance_salted(self) -> float:
        return _imbalance(self.salted)

    def code(self) -> str:
        """Example code for producers."""
        keys = ", ".join(repr(one.key) for one in self.hot)
        return (
            "from penstock.app.salting import Salting\n\n"
            f"salting = Salting(hot={{{keys}}}, buckets={self.buckets})\n"
            f'client.publish("{self.topic}", value, key=salting.salt(key))'
        )

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partitions": self.partitions,
            "records": self.records,
            "keys": self.keys,
            "imbalance": round(self.imbalance, 3),
            "by_partition": self.by_partition,
            "hot": [_key_document(one) for one in self.hot],
            "top": [_key_document(one) for one in self.top],
            "buckets": self.buckets,
            "imbalance_salted": round(self.imbalance_salted, 3) if self.salted else None,
            "salted": self.salted,
        }


def find_skew(
    spark: Any,
    *,
    cluster: Mapping[str, str],
    topic: str,
    partitions: int,
    sample: float = 1.0,
    **options: str,
) -> Skew:
    """Measures the distribution; a `sample` below 1 counts only this fraction of the records."""
    found = Skew(topic, partitions)
    columns = ("partition", "key", "value")
    rows = read_input(spark, JobInput(topic), cluster, columns=columns, **options)
    if sample < 1.0:
        rows = rows.sample(sample, seed=1)
    size = F.coalesce(F.length("key"), F.lit(0)) + F.coalesce(F.length("value"), F.lit(0))
    counted = (
        rows.groupBy("partition", "key")
        .agg(F.count(F.lit(1)).alias("records"), F.sum(size).alias("bytes"))
        .cache()
    )
    try:
        held = {
            int(row["partition"]): int(row["records"])
            for row in counted.groupBy("partition").agg(F.sum("records").alias("records")).collect()
        }
        found.by_partition = [held.get(index, 0) for index in range(partitions)]
        found.records = sum(found.by_partition)
        found.keys = int(counted.select("key").distinct().count())
        by_key = (
            counted.filter("key is not null")
            .groupBy("key")
            .agg(
                F.sum("records").alias("records"),
                F.sum("bytes").alias("bytes"),
                F.max_by("partition", "records").alias("partition"),
            )
        )
        for row in by_key.orderBy(F.desc("records"), "key").limit(KEYS_MAX).collect():
            share = row["records"] / max(1, found.records)
            found.top.append(
                KeyShare(bytes(row["key"]), row["records"], row["bytes"], share, row["partition"])
            )
    finally:
        counted.unpersist()
    advise(found)
    return found


def advise(found: Skew) -> None:
    """Sets the keys to salt, the number of buckets, and the resulting distribution."""
    fair = 1 / max(1, found.partitions)
    found.hot = [one for one in found.top if one.share > HOT_SHARE * fair]
    if not found.hot or found.partitions < 2:
        found.hot = found.hot if found.partitions > 1 else []
        return
    widest = max(one.share for one in found.hot) / fair
    found.buckets = min(BUCKETS_MAX, max(2, math.ceil(widest * _SLACK)))
    found.salted = spread(found.by_partition, {one.key: one for one in found.hot}, found.buckets)


def report_of(found: Skew) -> Report:
    report = Report(f"Skew of {found.topic}")
    report.text(
        f"{found.records:,} records of {found.keys:,} keys in {found.partitions} partitions. The "
        f"largest partition has {found.imbalance:.2f} times its fair share."
    )
    names = [str(index) for index in range(found.partitions)]
    held: dict[str, list[int]] = {"now": found.by_partition}
    if found.salted:
        held["salted"] = found.salted
    report.picture("partitions", reports.bars("Records by partition", names, held, "records"))
    keys = [one.key.decode("utf-8", "replace") for one in found.top]
    counts = {"records": [one.records for one in found.top]}
    report.picture("keys", reports.bars("The largest keys", keys, counts, "records"))
    if found.buckets:
        report.heading("What to do")
        report.text(
            f"Salt {len(found.hot)} hot keys in {found.buckets} buckets: the largest partition "
            f"would have {found.imbalance_salted:.2f} fair shares. Order is then kept per key and "
            "salt only."
        )
        report.code(found.code())
    return report


def spread(by_partition: list[int], hot: Mapping[bytes, KeyShare], buckets: int) -> list[int]:
    """Records by partition with hot keys salted; other keys stay in their partitions."""
    held = list(by_partition)
    count = len(held)
    for key, one in hot.items():
        held[one.partition] -= min(held[one.partition], one.records)
        for bucket in range(buckets):
            share = one.records * (bucket + 1) // buckets - one.records * bucket // buckets
            held[partition_for_key(salted(key, bucket), count)] += share
    return held


def _imbalance(held: list[int]) -> float:
    total = sum(held)
    return max(held) * len(held) / total if total else 1.0


def _key_document(one: KeyShare) -> dict[str, Any]:
    return {
        "key": one.key.decode("utf-8", "replace"),
        "records": one.records,
        "bytes": one.bytes,
        "share": round(one.share, 4),
        "partition": one.partition,
    }
