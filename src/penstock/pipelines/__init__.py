"""Pipelines on Spark: stages between topics, each a function from DataFrame to DataFrame.

What users import is here; see docs/how-to/pipelines.md. PySpark is loaded with the steps, which
need it, and not with `Pipeline`, which does not.
"""

from typing import TYPE_CHECKING, Any

from penstock.pipelines.endpoints import (
    EachBatch,
    Files,
    Latest,
    PipelineError,
    Queue,
    Stored,
    Topic,
)
from penstock.pipelines.pipeline import Pipeline

if TYPE_CHECKING:
    from penstock.pipelines.query_builder import Surroundings
    from penstock.pipelines.runner import Runner
    from penstock.pipelines.steps import (
        aggregate,
        dedup,
        each,
        lookup,
        message_id,
        reject,
        reject_late,
        sessions,
    )

__all__ = [
    "EachBatch",
    "Files",
    "Latest",
    "Pipeline",
    "PipelineError",
    "Queue",
    "Runner",
    "Stored",
    "Surroundings",
    "Topic",
    "aggregate",
    "dedup",
    "each",
    "lookup",
    "message_id",
    "reject",
    "reject_late",
    "sessions",
]

_STEPS = "penstock.pipelines.steps"
_HOMES = {
    "Runner": "penstock.pipelines.runner",
    "Surroundings": "penstock.pipelines.query_builder",
    **dict.fromkeys(
        (
            "aggregate",
            "dedup",
            "each",
            "lookup",
            "message_id",
            "reject",
            "reject_late",
            "sessions",
        ),
        _STEPS,
    ),
}


def __getattr__(name: str) -> Any:
    """Loads PySpark only when something that needs it is asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
