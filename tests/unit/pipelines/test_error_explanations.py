"""Explanations of Spark's errors."""

from penstock.pipelines import Pipeline
from penstock.pipelines.error_explanations import explain, reason_of


def stage() -> object:
    pipeline = Pipeline("p")
    pipeline.extract("a", to="b", name="sum", version=2)(lambda rows: rows)
    return pipeline.stage("sum")


def test_incompatible_state_is_explained() -> None:
    text = "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema does not match ..."
    advice = explain(stage(), text)  # type: ignore[arg-type]
    assert not advice.can_restart
    assert "version=3" in advice.text
    assert "no record is lost" in advice.text


def test_missing_state_is_explained() -> None:
    text = "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS] Error reading delta file"
    advice = explain(stage(), text)  # type: ignore[arg-type]
    assert not advice.can_restart
    assert "use lookup" in advice.text
    assert "version=3" in advice.text


def test_last_python_exception_is_the_reason() -> None:
    text = (
        "Job aborted.\nTraceback (most recent call last):\n  File x\n"
        "penstock.spark.option_values.OptionError: nope\nValueError: the last one\n\tat java.lang"
    )
    advice = explain(stage(), text)  # type: ignore[arg-type]
    assert advice == ("ValueError: the last one", True)
    assert explain(stage(), "").text == "no reason given"  # type: ignore[arg-type]


def test_reason_omits_module_names_and_java_exceptions() -> None:
    text = (
        "[STREAM_FAILED] Query terminated with exception: [PYTHON_EXCEPTION] Traceback:\n"
        "  File x\npenstock.base.errors.Refused: topic 'a' does not exist\n"
        "org.apache.spark.SparkException: Job aborted\n\tat java.lang"
    )
    assert reason_of(text) == "Refused: topic 'a' does not exist"
