"""Job `audit`: checks that an output has every record of an input, once and in order.

An id identifies records on both sides: partition and offset for an archive of the same topic, else
a SQL expression of the user, or the header message_id, or key and value together. An id with more
records on the left is *lost*, with more on the right *doubled* (*foreign* if the left has none).
Order is checked per key: records of one key and partition on the left, each once on the right, must
have the same order there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from penstock.jobs.inputs import JobInput, filter_records, read_input

SAMPLES_MAX: Final = 10
_HEADER_ID: Final = "get(filter(headers, h -> h.key = 'message_id'), 0).value"
_IDS: Final = {
    "place": "concat(partition, '/', `offset`)",
    "message_id": f"cast({_HEADER_ID} as string)",
    "content": "sha2(concat(coalesce(hex(key), '-'), '/', coalesce(hex(value), '-')), 256)",
}


@dataclass(slots=True)
class AuditResult:
    """Counts and samples of differences between the two sides."""

    left: str
    right: str
    identity: str
    left_records: int = 0
    right_records: int = 0
    lost: int = 0
    doubled: int = 0
    foreign: int = 0
    out_of_order: int = 0
    changed: int = 0
    """Records with the same partition and offset, but another key or value."""
    without_id: int = 0
    samples: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        found = self.lost + self.doubled + self.foreign + self.out_of_order
        return found + self.changed + self.without_id == 0

    def document(self) -> dict[str, Any]:
        from dataclasses import asdict

        return {**asdict(self), "clean": self.is_clean}


def audit(
    spark: Any,
    *,
    cluster: Mapping[str, str],
    left: JobInput,
    right: JobInput,
    identity: str | None = None,
    until_ms: int | None = None,
    where: str | None = None,
) -> AuditResult:
    """Compares two inputs; `identity` is place, message_id, content, or a SQL expression.

    Includes records of the left before `until_ms`, and records of both sides that match `where`.
    """
    same_places = left.topic == right.topic and (left.archive or right.archive)
    named = identity or ("place" if same_places else "content")
    # Reads the left first: records written meanwhile then can only be missing on the left.
    before = _identified(read_input(spark, left, cluster), named, where, until_ms).cache()
    report = AuditResult(str(left), str(right), named)
    try:
        report.left_records = int(before.count())
        after = _identified(read_input(spark, right, cluster), named, where, None).cache()
        try:
            report.right_records = int(after.count())
            _compare_records(report, before, after, until_ms)
        finally:
            after.unpersist()
    finally:
        before.unpersist()
    return report


def _identified(rows: Any, named: str, where: str | None, until_ms: int | None) -> Any:
    """Id, offset, key and digest of every record; expressions see key and value as text."""
    kept = filter_records(rows, until_ms=until_ms, where=where)
    expression = _IDS.get(named)
    if expression is None:
        text = kept.withColumns(
            {
                "_key": F.col("key"),
                "key": F.col("key").cast("string"),
                "_value": F.col("value"),
                "value": F.col("value").cast("string"),
            }
        )
        kept = text.withColumn("_id", F.expr(named).cast("string")).withColumns(
            {"key": F.col("_key"), "value": F.col("_value")}
        )
    else:
        kept = kept.withColumn("_id", F.expr(expression))
    digest = F.xxhash64(F.coalesce("key", F.lit(b"")), F.coalesce("value", F.lit(b"")))
    return kept.select(
        F.col("_id").alias("id"), "partition", "offset", "timestamp", "key", digest.alias("digest")
    )


def _compare_records(report: AuditResult, before: Any, after: Any, until_ms: int | None) -> None:
    report.without_id = int(before.filter("id is null").count())
    left = _by_id(before, "left")
    right = _by_id(after, "right")
    both = left.join(right, "id", "full_outer").fillna(0, ["left_count", "right_count"]).cache()
    try:
        lost = both.filter("left_count > right_count")
        report.lost = _total(lost, "left_count - right_count")
        doubled = both.filter("right_count > left_count and left_count > 0")
        report.doubled = _total(doubled, "right_count - left_count")
        foreign = both.filter("left_count = 0")
        if until_ms is not None:
            # The left excludes newer records, so the right may have them.
            foreign = foreign.filter(F.unix_millis("right_first") < until_ms)
        report.foreign = _total(foreign, "right_count")
        if report.identity == "place":
            changed = both.filter("left_count > 0 and right_count > 0 and left_sum <> right_sum")
            report.changed = int(changed.count())
            report.samples["changed"] = _sample(changed)
        once = both.filter("left_count = 1 and right_count = 1")
        swapped = _out_of_order(once)
        report.out_of_order = int(swapped.count())
        for name, rows in (
            ("lost", lost),
            ("doubled", doubled),
            ("foreign", foreign),
            ("out_of_order", swapped),
        ):
            report.samples[name] = _sample(rows) if getattr(report, name) else []
    finally:
        both.unpersist()


def _by_id(rows: Any, side: str) -> Any:
    return (
        rows.filter("id is not null")
        .groupBy("id")
        .agg(
            F.count(F.lit(1)).alias(f"{side}_count"),
            F.min("timestamp").alias(f"{side}_first"),
            F.min("partition").alias(f"{side}_partition"),
            F.min("offset").alias(f"{side}_offset"),
            F.first("key").alias(f"{side}_key"),
            F.sum(F.col("digest").cast("decimal(38,0)")).alias(f"{side}_sum"),
        )
    )


def _out_of_order(once: Any) -> Any:
    """Records whose order on the right differs from that on the left."""
    # Records without key are ordered by partition.
    ordered_by = (
        F.col("left_partition"),
        F.col("right_partition"),
        F.coalesce("left_key", F.lit(b"")),
    )
    earlier = (
        Window.partitionBy(*ordered_by)
        .orderBy("right_offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    return once.withColumn("_before", F.max("left_offset").over(earlier)).filter(
        "left_offset < _before"
    )


def _total(rows: Any, expression: str) -> int:
    return int(rows.agg(F.sum(F.expr(expression))).first()[0] or 0)


def _sample(rows: Any) -> list[str]:
    found = rows.select("id").orderBy("id").limit(SAMPLES_MAX).collect()
    return [str(row["id"]) for row in found]
