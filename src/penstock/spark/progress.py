"""Progress of a stream in records: rows read, and offsets behind the end of its topics.

Spark fills the metrics of a source only for sources in Java. In the progress of a Python source the
description is the name of a class, and for `read_stream` the number of input rows counts ranges.
`source_progress` computes both from the event: rows from the metric that `read_stream` observes,
and the distance from the offsets. Names of metrics are those of Spark's Kafka source.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.spark.range_planning import ForeignOffsets, PartitionOffsets, from_json

METRIC_PREFIX: Final = "penstock "
"""Start of the names of metrics that `read_stream` observes; the names of its topics follow."""
_SOURCE_CLASS: Final = "PythonMicroBatchStream"


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """One source of a stream, in one batch."""

    description: str
    """Topics and number of partitions."""
    rows: int | None
    """Rows read; None if several sources of the query read the same topics."""
    end: PartitionOffsets = field(repr=False)
    """Offsets up to which the batch has read."""
    metrics: dict[str, float]
    """avgOffsetsBehindLatest, maxOffsetsBehindLatest, minOffsetsBehindLatest; empty if unknown."""

    def __str__(self) -> str:
        rows = "unknown" if self.rows is None else self.rows
        behind = self.metrics.get("maxOffsetsBehindLatest")
        lag = "" if behind is None else f", at most {behind:g} behind"
        return f"{self.description}: {rows} rows{lag}"


def source_progress(event: Any) -> list[SourceProgress]:
    """Sources of a progress event: `query.lastProgress`, a listener's `event.progress`, or JSON."""
    document = _document(event)
    observed = _observed_rows(document.get("observedMetrics") or {})
    found = []
    for source in document.get("sources") or ():
        if _SOURCE_CLASS not in str(source.get("description")):
            continue
        try:
            end = from_json(_offsets(source.get("endOffset")))
            latest = from_json(_offsets(source.get("latestOffset")))
        except ForeignOffsets:  # Another Python source, or a queue.
            continue
        topics = ",".join(sorted({where.topic for where in end}))
        rows = _rows(source, topics, observed, document)
        found.append(SourceProgress(_description(topics, end), rows, end, _behind(end, latest)))
    return found


def _document(event: Any) -> Mapping[str, Any]:
    if event is None:  # lastProgress before the first batch.
        return {}
    text = event if isinstance(event, str) else getattr(event, "json", None)
    found: Mapping[str, Any] = json.loads(text) if isinstance(text, str) else event
    return found


def _offsets(value: Any) -> Any:
    """Offsets of an event, which are text in some versions of Spark."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return {} if value is None else value


def _observed_rows(metrics: Mapping[str, Any]) -> dict[str, list[int]]:
    """Observed rows by topics; several sources may read the same ones."""
    found: dict[str, list[int]] = {}
    for name, row in metrics.items():
        if name.startswith(METRIC_PREFIX) and isinstance(row, Mapping):
            topics = name.removeprefix(METRIC_PREFIX).partition(" ")[2]
            found.setdefault(topics, []).append(int(row["rows"]))
    return found


def _rows(
    source: Mapping[str, Any],
    topics: str,
    observed: Mapping[str, list[int]],
    document: Mapping[str, Any],
) -> int | None:
    if not observed:
        return int(source.get("numInputRows") or 0)
    if len(document["sources"]) == 1 and len(observed) == 1:
        counts = next(iter(observed.values()))  # A pattern's metric has no names of topics.
    else:
        counts = observed.get(topics, [])
    return counts[0] if len(counts) == 1 else None


def _description(topics: str, end: PartitionOffsets) -> str:
    names = topics.split(",") if topics else []
    shown = ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:3])} ..."
    what = f"topic {shown}" if len(names) == 1 else f"{len(names)} topics {shown}".rstrip()
    return f"{what}, {len(end)} partition{'' if len(end) == 1 else 's'}"


def _behind(end: PartitionOffsets, latest: PartitionOffsets) -> dict[str, float]:
    distances = [max(0, latest[where] - end.get(where, 0)) for where in latest]
    if not distances or not end:
        return {}
    return {
        "avgOffsetsBehindLatest": sum(distances) / len(distances),
        "maxOffsetsBehindLatest": max(distances),
        "minOffsetsBehindLatest": min(distances),
    }
