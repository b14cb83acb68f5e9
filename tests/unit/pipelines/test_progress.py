"""Aggregation of Spark's progress events to the status of a stage."""

from typing import Any, ClassVar

from penstock.client.metadata import TopicPartition
from penstock.pipelines.progress import ROWS_IN, ROWS_OUT, ProgressCounter, StageState


def event(batch: int, at: str, rows: int, bad: int = 0, end: object = None) -> dict[str, Any]:
    return {
        "runId": "r",
        "batchId": batch,
        "timestamp": at,
        "observedMetrics": {ROWS_IN: {"rows": rows}, ROWS_OUT: {"rows": rows - bad, "bad": bad}},
        "stateOperators": [{"numRowsDroppedByWatermark": 1}],
        "sources": [{"endOffset": end}],
    }


def test_repeated_events_count_once() -> None:
    counter = ProgressCounter(StageState("p", "s", "run"))
    first = event(0, "t0", 10, 2, '{"a": {"0": 5, "1": 5}}')
    second = event(1, "t1", 3, 0, {"a": {"0": 8, "1": 5}})
    for one in (first, first, second, first, second):
        counter.take(one)
    state = counter.state
    assert (state.rows_in, state.rows_out, state.bad_rows, state.late_rows) == (13, 11, 2, 2)
    assert state.batch == 1
    counter.measure({TopicPartition("a", 0): 10, TopicPartition("a", 1): 5})
    assert state.lag == 2


def test_input_counts_in_the_first_query_only() -> None:
    counter = ProgressCounter(StageState("p", "s", "run"))
    counter.take(event(0, "t0", 10, 0, {"a": {"0": 5}}))
    counter.take({**event(0, "t0", 10, 2, {"a": {"0": 9}}), "runId": "q"}, is_first=False)
    assert (counter.state.rows_in, counter.state.bad_rows) == (10, 2)
    assert counter.done == {TopicPartition("a", 0): 5}


def test_event_without_rows_changes_nothing() -> None:
    counter = ProgressCounter(StageState("p", "s", "run"))
    counter.take(
        {"runId": "r", "batchId": 7, "timestamp": "t", "observedMetrics": {}, "sources": []}
    )
    assert counter.state.batch == -1
    assert counter.state.rows_in == 0
    assert counter.state.lag == -1


def test_status_document_has_the_fields_of_the_console() -> None:
    document = StageState("p", "s", "run", error="why").document()
    assert {
        "pipeline", "stage", "state", "batch", "rows_in", "rows_out", "bad_rows", "lag",
        "updated_ms", "error",
    } <= set(document)  # fmt: skip
    assert StageState("p", "s", "run").key == "p/s"


def test_rows_of_spark_connect_are_counted() -> None:
    class Row(tuple[Any, ...]):
        """Stand-in for `pyspark.sql.Row` of Spark Connect, which a driver may lack."""

        values = (7,)
        schema: ClassVar = {"type": "struct", "fields": [{"name": "rows", "type": "long"}]}

    counter = ProgressCounter(StageState("p", "s", "run"))
    counter.take({**event(0, "t0", 0), "observedMetrics": {ROWS_IN: Row()}})
    assert counter.state.rows_in == 7
