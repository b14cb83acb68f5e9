"""Checks of expectations on DataFrames; `expectations` declares them.

A failed row with several expectations goes to the dead letters if one of them says so, else it is
dropped if one of them says so: no record disappears that another expectation would have kept.
"""

from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import functions as F

from penstock.pipelines.endpoints import PipelineError
from penstock.pipelines.expectations import DLQ, DROP, FAIL, Expectation
from penstock.pipelines.pipeline import Stage
from penstock.pipelines.progress import EXPECTATIONS, FAILED_SUFFIX, PASSED_SUFFIX
from penstock.pipelines.record_columns import FAILURE, RECORD, split_failures

ERROR_CLASS: Final = "ExpectationFailed"
_MARK: Final = "_expected_"


@dataclass(frozen=True, slots=True)
class CheckedRows:
    rows: Any
    """Rows that remain."""
    counts: Any | None
    """One row with the counts of all expectations, for a batch; None without expectations."""


def check_expectations(rows: Any, stage: Stage) -> CheckedRows:
    """Counts the rows that pass each expectation, and applies what `on_fail` says."""
    expectations = stage.expectations
    if not expectations:
        return CheckedRows(rows, None)
    if RECORD not in rows.columns and any(one.on_fail == DLQ for one in expectations):
        raise PipelineError(
            f"stage {stage.name!r}: on_fail='dlq' needs the column 'record', which the stage's "
            "function drops; keep it, or use drop, warn or fail"
        )
    marks = {f"{_MARK}{index}": _holds(one) for index, one in enumerate(expectations)}
    marked = rows.withColumns(marks)
    aggregates = []
    for index, one in enumerate(expectations):
        mark = F.col(f"{_MARK}{index}")
        aggregates.append(F.count_if(mark).alias(f"{one.name}{PASSED_SUFFIX}"))
        aggregates.append(F.count_if(~mark).alias(f"{one.name}{FAILED_SUFFIX}"))
    counts = None if rows.isStreaming else marked.agg(*aggregates)
    kept = marked.observe(EXPECTATIONS, *aggregates)
    failure = F.lit(None)
    for index, one in reversed(list(enumerate(expectations))):
        has_failed = ~F.col(f"{_MARK}{index}")
        if one.on_fail == FAIL:
            text = f"{ERROR_CLASS}: stage {stage.name!r}: {_reason(one)}"
            raised = F.raise_error(F.lit(text)).cast("boolean")
            kept = kept.filter(F.when(has_failed, raised).otherwise(True))
        elif one.on_fail == DLQ:
            kind, message = F.lit(ERROR_CLASS), F.lit(_reason(one))
            rejected = F.struct(kind.alias("class"), message.alias("message"))
            failure = F.when(has_failed, rejected).otherwise(failure)
    if any(one.on_fail == DLQ for one in expectations):
        kept = split_failures(kept.withColumn(FAILURE, failure))
    for index, one in enumerate(expectations):
        if one.on_fail == DROP:
            kept = kept.filter(F.col(f"{_MARK}{index}"))
    return CheckedRows(kept.drop(*marks), counts)


def _holds(one: Expectation) -> Any:
    return F.coalesce(F.expr(one.condition).cast("boolean"), F.lit(False))


def _reason(one: Expectation) -> str:
    return f"expectation {one.name} failed: {one.condition}"
