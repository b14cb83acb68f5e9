"""Rejected rows of a stage, collected while its function runs.

`steps` rejects rows anywhere inside the stage's function; `query_builder` needs them in addition to
the function's result. Outside of a stage, for example in a unit test of the function, they are
dropped.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from penstock.pipelines.endpoints import PipelineError
from penstock.pipelines.record_columns import FAILURE, RECORD

_collected: ContextVar[list[Any] | None] = ContextVar("rejects", default=None)


@contextmanager
def collect_rejected() -> Iterator[list[Any]]:
    """Collects the rows that steps reject within this context."""
    found: list[Any] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)


def split_failures(rows: Any) -> Any:
    """Rejects rows with a failure to the dead-letter queue; returns the others without it."""
    if RECORD not in rows.columns:
        raise PipelineError(
            "rejecting rows needs the column 'record': reject before you select other columns or "
            "aggregate"
        )
    found = _collected.get()
    if found is not None:
        found.append(rows.filter(f"{FAILURE} is not null").select(RECORD, FAILURE))
    return rows.filter(f"{FAILURE} is null").drop(FAILURE)
