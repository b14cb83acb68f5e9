"""Job `triage`: groups dead letters by cause, reports them, and selects some for redrive.

Spark reads the dead letters; only open ones count, as elsewhere. Messages that differ only in
numbers, quoted words and ids are one kind. The client's redriver redrives the dead letters that a
SQL condition selects, with its guarantees: each once, in order, recorded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import functions as F

from penstock.client.dead_letters.filters import DeadLetterFilter
from penstock.jobs import reports
from penstock.jobs.inputs import JobInput, read_input
from penstock.jobs.reports import Report
from penstock.state.queues import dead_letter_format

KINDS_MAX: Final = 50
SERIES_MAX: Final = 5
SELECTED_MAX: Final = 100_000
"""Maximum dead letters selected for one redrive."""
_HOUR: Final = "yyyy-MM-dd HH:00"
_SHOWN_CHARS_MAX: Final = 160
_HEADERS: Final = {
    "error_class": dead_letter_format.ERROR_CLASS,
    "error_message": dead_letter_format.ERROR_MESSAGE,
    "source_topic": dead_letter_format.TOPIC,
    "source_partition": dead_letter_format.PARTITION,
    "source_offset": dead_letter_format.OFFSET,
    "group": dead_letter_format.GROUP,
    "attempts": dead_letter_format.ATTEMPTS,
    "last_failure": dead_letter_format.LAST_FAILURE,
}
COLUMNS: Final = (*_HEADERS, "failed_at", "key", "value", "partition", "offset", "kind")
"""Columns for conditions; all are text except failed_at, partition and offset."""

Runs = Mapping[int, Sequence[tuple[int, int]]]
"""First and last offset of runs of open dead letters, by partition."""


@dataclass(slots=True)
class FailureKind:
    """Dead letters with the same cause."""

    error_class: str
    kind: str
    count: int
    first: str
    last: str
    groups: list[str]
    sources: list[str]
    sample: str
    """Partition and offset of one of them, in the format of `penstock dlq show`."""
    message: str
    value: str


@dataclass(slots=True)
class Triage:
    topic: str
    dead_letters: int = 0
    kinds: list[FailureKind] = field(default_factory=list)
    hours: list[str] = field(default_factory=list)
    by_hour: dict[str, list[int]] = field(default_factory=dict)
    """Counts per hour, by error class."""
    keys: list[tuple[str, int]] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        from dataclasses import asdict

        document = asdict(self)
        # The name that the command's JSON has had since its first version.
        return {"letters": document.pop("dead_letters"), **document}


def read_dead_letters(spark: Any, cluster: Mapping[str, str], topic: str, open_runs: Runs) -> Any:
    """Open dead letters with `COLUMNS`."""
    columns = ("partition", "offset", "timestamp", "key", "value", "headers")
    raw = read_input(spark, JobInput(topic), cluster, columns=columns)
    runs = [
        {"partition": partition, "first": first, "last": last}
        for partition, spans in open_runs.items()
        for first, last in spans
    ]
    schema = "partition int, first bigint, last bigint"
    is_open = F.broadcast(spark.createDataFrame(runs, schema))
    same = (
        (raw["partition"] == is_open["partition"])
        & (raw["offset"] >= is_open["first"])
        & (raw["offset"] <= is_open["last"])
    )
    columns_by_name = {name: _header(header) for name, header in _HEADERS.items()}
    rows = raw.join(is_open, same, "left_semi").withColumns(columns_by_name)
    moment = F.expr("try_cast(last_failure as bigint)")
    kind = F.col("error_message")
    for pattern, put in (("'[^']*'|\"[^\"]*\"", "'…'"), (r"[0-9a-fA-F-]{16,}", "#"), (r"\d+", "#")):
        kind = F.regexp_replace(kind, pattern, put)
    return rows.withColumns(
        {
            "failed_at": F.coalesce(F.timestamp_millis(moment), "timestamp"),
            "key": F.col("key").cast("string"),
            "value": F.col("value").cast("string"),
            "error_class": F.coalesce("error_class", F.lit("unknown")),
            "kind": F.substring(F.coalesce(kind, F.lit("")), 1, _SHOWN_CHARS_MAX),
        }
    ).select(*COLUMNS)


def _header(name: str) -> Any:
    same = F.filter(F.col("headers"), lambda header: header["key"] == name)
    return F.get(same, 0)["value"].cast("string")


def triage(rows: Any, topic: str) -> Triage:
    """Counts the rows of `read_dead_letters` by kind, hour and key."""
    found = Triage(topic)
    grouped = rows.groupBy("error_class", "kind").agg(
        F.count(F.lit(1)).alias("count"),
        F.min("failed_at").alias("first"),
        F.max("failed_at").alias("last"),
        F.sort_array(F.collect_set("group")).alias("groups"),
        F.sort_array(F.collect_set("source_topic")).alias("sources"),
        F.min_by(F.concat_ws(":", "partition", "offset"), "failed_at").alias("sample"),
        F.min_by("error_message", "failed_at").alias("message"),
        F.min_by(F.substring("value", 1, _SHOWN_CHARS_MAX), "failed_at").alias("value"),
    )
    for row in grouped.orderBy(F.desc("count"), "error_class", "kind").limit(KINDS_MAX).collect():
        found.kinds.append(
            FailureKind(
                row["error_class"],
                row["kind"],
                row["count"],
                str(row["first"]),
                str(row["last"]),
                list(row["groups"]),
                list(row["sources"]),
                row["sample"] or "",
                (row["message"] or "")[:_SHOWN_CHARS_MAX],
                row["value"] or "",
            )
        )
    hour = F.date_format("failed_at", _HOUR)
    hours = rows.groupBy(hour.alias("hour"), "error_class").count().collect()
    found.dead_letters = sum(row["count"] for row in hours)
    found.hours = sorted({row["hour"] for row in hours})
    at = {name: index for index, name in enumerate(found.hours)}
    for row in sorted(hours, key=lambda row: row["error_class"]):
        line = found.by_hour.setdefault(row["error_class"], [0] * len(at))
        line[at[row["hour"]]] += row["count"]
    keys = rows.groupBy("key").count().orderBy(F.desc("count"), "key").limit(10).collect()
    found.keys = [(row["key"] or "-", row["count"]) for row in keys]
    return found


def report_of(found: Triage) -> Report:
    report = Report(f"Dead letters of {found.topic}")
    report.text(f"{found.dead_letters:,} open dead letters of {len(found.kinds)} kinds.")
    if not found.dead_letters:
        return report
    names = [f"{kind.error_class}: {kind.kind}" for kind in found.kinds[:15]]
    counts = {"dead letters": [kind.count for kind in found.kinds[:15]]}
    report.picture("kinds", reports.bars("Dead letters by kind", names, counts, "dead letters"))
    largest = sorted(found.by_hour.items(), key=lambda pair: -sum(pair[1]))[:SERIES_MAX]
    report.picture("hours", reports.lines("By hour", found.hours, dict(largest), "dead letters"))
    report.heading("Kinds")
    report.table(
        ["count ", "error", "message", "groups", "from", "first", "last", "sample"],
        [
            (
                kind.count,
                kind.error_class,
                kind.kind,
                ", ".join(kind.groups),
                ", ".join(kind.sources),
                kind.first,
                kind.last,
                kind.sample,
            )
            for kind in found.kinds
        ],
    )
    report.heading("Samples")
    report.table(
        ["sample", "message", "payload"],
        [(kind.sample, kind.message, kind.value) for kind in found.kinds],
    )
    report.heading("Keys with the most dead letters")
    report.table(["key", "count "], found.keys)
    return report


def select(rows: Any, where: str) -> DeadLetterFilter:
    """Selects the dead letters that match a condition, by partition and offset."""
    ids = rows.filter(where).select("partition", "offset").limit(SELECTED_MAX).collect()
    return DeadLetterFilter(ids=frozenset((row["partition"], row["offset"]) for row in ids))
