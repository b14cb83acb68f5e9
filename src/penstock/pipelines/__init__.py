"""Pipelines on Spark: stages between topics, each a function from DataFrame to DataFrame.

The public names; see docs/how-to/pipelines.md. Importing the steps loads PySpark, importing
`Pipeline` does not.
"""

from typing import TYPE_CHECKING, Any

from penstock.pipelines.endpoints import (
    DeltaTable,
    EachBatch,
    Files,
    IcebergTable,
    Latest,
    PipelineError,
    Queue,
    Stored,
    Topic,
)
from penstock.pipelines.expectations import expect
from penstock.pipelines.pipeline import Pipeline

if TYPE_CHECKING:
    from penstock.pipelines.query_builder import PipelineEnvironment
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
    from penstock.pipelines.testing import InputRecord

__all__ = [
    "DeltaTable",
    "EachBatch",
    "Files",
    "IcebergTable",
    "InputRecord",
    "Latest",
    "Pipeline",
    "PipelineEnvironment",
    "PipelineError",
    "Queue",
    "Runner",
    "Stored",
    "Topic",
    "aggregate",
    "dedup",
    "each",
    "expect",
    "lookup",
    "message_id",
    "reject",
    "reject_late",
    "sessions",
]

_STEPS = "penstock.pipelines.steps"
_MODULES = {
    "Runner": "penstock.pipelines.runner",
    "PipelineEnvironment": "penstock.pipelines.query_builder",
    "InputRecord": "penstock.pipelines.testing",
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
    """Imports PySpark only when an exported name that needs it is used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)
