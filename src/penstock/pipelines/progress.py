"""Progress of a stage: Spark's progress events aggregated to its status.

Pure: progress events in, a `StageState` out. Spark's own count of input rows is not used, because a
stream of offset ranges counts ranges. Metrics observed by `query_builder` count the rows.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from penstock.client.metadata import TopicPartition
from penstock.spark.range_planning import PartitionOffsets, count_between, from_json

STARTING: Final = "starting"
RUNNING: Final = "running"
RESTARTING: Final = "restarting"
STOPPED: Final = "stopped"
FINISHED: Final = "finished"
FAILED: Final = "failed"
ENDED: Final = frozenset({STOPPED, FINISHED, FAILED})

ROWS_IN: Final = "penstock_in"
ROWS_OUT: Final = "penstock_out"
EXPECTATIONS: Final = "penstock_expectations"
PASSED_SUFFIX: Final = " passed"
FAILED_SUFFIX: Final = " failed"
"""Ends of the columns in the metric of expectations; their names come first."""
_SEEN_EVENTS_MAX: Final = 200


@dataclass(slots=True)
class StageState:
    """Status of a stage. Counters start at 0 with each run."""

    pipeline: str
    stage: str
    run: str
    state: str = STARTING
    batch: int = -1
    rows_in: int = 0
    rows_out: int = 0
    bad_rows: int = 0
    late_rows: int = 0
    """Rows that Spark dropped behind the watermark."""
    lag: int = -1
    """Records not read yet; -1: unknown."""
    updated_ms: int = 0
    restarts: int = 0
    error: str | None = None
    source: str = ""
    target: str = ""
    group: str = ""
    dlq: str = ""
    expectations: dict[str, dict[str, int]] = field(default_factory=dict)
    """Rows that `passed` and `failed`, by expectation."""

    @property
    def key(self) -> str:
        return f"{self.pipeline}/{self.stage}"

    def document(self) -> dict[str, Any]:
        return asdict(self)


class ProgressCounter:
    """Adds a query's progress events to its state, each event once."""

    def __init__(self, state: StageState) -> None:
        self.state = state
        self.done: PartitionOffsets = {}
        """Offsets up to which the query has read."""
        self._seen: dict[tuple[str, int, str], None] = {}

    def take(self, event: Mapping[str, Any], *, is_first: bool = True) -> None:
        """Adds an event; `is_first` is True for the stage's first query, which counts the input."""
        mark = (str(event["runId"]), int(event["batchId"]), str(event["timestamp"]))
        if mark in self._seen:
            return
        self._seen[mark] = None
        while len(self._seen) > _SEEN_EVENTS_MAX:
            del self._seen[next(iter(self._seen))]
        state = self.state
        metrics = event.get("observedMetrics") or {}
        rows_in = _metric(metrics, ROWS_IN, "rows") if is_first else 0
        if rows_in or _metric(metrics, ROWS_OUT, "rows") or _metric(metrics, ROWS_OUT, "bad"):
            state.batch = int(event["batchId"])
        state.rows_in += rows_in
        state.rows_out += _metric(metrics, ROWS_OUT, "rows")
        state.bad_rows += _metric(metrics, ROWS_OUT, "bad")
        for name, counts in state.expectations.items() if is_first else ():
            counts["passed"] += _metric(metrics, EXPECTATIONS, f"{name}{PASSED_SUFFIX}")
            counts["failed"] += _metric(metrics, EXPECTATIONS, f"{name}{FAILED_SUFFIX}")
        for operator in event.get("stateOperators") or ():
            state.late_rows += int(_get(operator, "numRowsDroppedByWatermark", 0))
        for source in (event.get("sources") or ()) if is_first else ():
            end = _get(source, "endOffset", None)
            # Spark passes the offset as text.
            offsets = json.loads(end) if isinstance(end, str) and end.startswith("{") else end
            # The offset of a queue lists the records of a batch instead.
            if isinstance(offsets, Mapping) and "taken" not in offsets:
                self.done.update(from_json(offsets))

    def measure(self, latest: Mapping[TopicPartition, int]) -> None:
        """Sets the lag, from the current end offsets of the partitions."""
        self.state.lag = count_between(self.done, latest)


def _metric(metrics: Mapping[str, Any], name: str, column: str) -> int:
    row = metrics.get(name)
    return 0 if row is None else int(_get(row, column, 0) or 0)


def _get(row: Any, name: str, default: Any) -> Any:
    """Field of a dict or of a Spark row."""
    if isinstance(row, Mapping):
        return row.get(name, default)
    schema = getattr(row, "schema", None)
    if isinstance(schema, Mapping):  # Spark Connect stores values and names separately.
        names = [field["name"] for field in schema["fields"]]
        return dict(zip(names, row.values, strict=True)).get(name, default)
    return getattr(row, name, default)
