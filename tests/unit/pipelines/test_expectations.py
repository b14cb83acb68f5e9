"""Declarations of expectations and SQL stages, and what status and metrics show of them."""

from typing import Any
from urllib.request import urlopen

import pytest

from penstock.cli.spark.pipelines import shown_expectations
from penstock.pipelines import Pipeline, PipelineError, expect
from penstock.pipelines.metrics_exporter import serve
from penstock.pipelines.progress import RUNNING, ProgressCounter, StageState


def test_expectations_are_in_the_order_of_the_source() -> None:
    pipeline = Pipeline("p")

    @pipeline.extract("a", to="b")
    @expect("first", "x > 0")
    @expect("second", "y > 0", on_fail="drop")
    def stage(rows: Any) -> Any:
        return rows

    pipeline.sql("other", "select * from rows", to="c", expectations=[expect("third", "z > 0")])
    assert [one.name for one in pipeline.stages["stage"].expectations] == ["first", "second"]
    assert [one.on_fail for one in pipeline.stages["stage"].expectations] == ["warn", "drop"]
    assert [one.name for one in pipeline.stages["other"].expectations] == ["third"]
    assert pipeline.stages["other"].kind == "transform"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"name": "a b", "condition": "x"}, "invalid name"),
        ({"name": "a", "condition": " "}, "condition is empty"),
        ({"name": "a", "condition": "x", "on_fail": "stop"}, "drop, dlq, warn, fail, not 'stop'"),
    ],
)
def test_invalid_expectation_is_refused(arguments: dict[str, str], why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        expect(**arguments)


def test_expectation_above_its_stage_is_refused() -> None:
    pipeline = Pipeline("p")
    with pytest.raises(PipelineError, match="above the decorator of its stage"):

        @expect("first", "x > 0")
        @pipeline.extract("a", to="b")
        def stage(rows: Any) -> Any:
            return rows


def test_expectation_declared_twice_is_refused() -> None:
    pipeline = Pipeline("p")
    twice = [expect("a", "x > 0"), expect("a", "y > 0")]
    with pytest.raises(PipelineError, match="two expectations 'a'"):
        pipeline.sql("s", "select * from rows", "topic", to="c", expectations=twice)
    with pytest.raises(PipelineError, match="query is empty"):
        pipeline.sql("s", " ", "topic", to="c")


def event(number: int, passed: int, failed: int) -> dict[str, Any]:
    counts = {"positive passed": passed, "positive failed": failed}
    metrics = {"penstock_expectations": counts}
    return {"runId": "r", "batchId": number, "timestamp": f"{number}", "observedMetrics": metrics}


def test_status_and_metrics_count_passed_and_failed_rows() -> None:
    state = StageState("p", "s", "run", state=RUNNING)
    state.expectations = {"positive": {"passed": 0, "failed": 0}}
    counter = ProgressCounter(state)
    assert shown_expectations(state.expectations) == "positive no rows"
    counter.take(event(0, 1_990, 1))
    counter.take(event(0, 1_990, 1))
    counter.take(event(1, 9, 0), is_first=False)
    assert state.expectations == {"positive": {"passed": 1_990, "failed": 1}}
    assert shown_expectations(state.expectations) == "positive 99.9 %"
    port, close = serve(0, lambda: [state])
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    close()
    labels = 'expectation="positive",pipeline="p",result="failed",stage="s"'
    assert f"penstock_pipeline_expectation_rows_total{{{labels}}} 1.0" in text
