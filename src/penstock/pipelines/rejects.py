"""Rows that a stage turns away, collected while its function runs.

`steps` turns rows away wherever the user asks for it, deep inside the stage's function; `building`
needs them beside what the function returns. Outside of a stage, in a test of the function for
instance, they are just left out.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from penstock.pipelines.endpoints import PipelineError
from penstock.pipelines.record_columns import FAILURE, RECORD

_collected: ContextVar[list[Any] | None] = ContextVar("rejects", default=None)


@contextmanager
def collecting() -> Iterator[list[Any]]:
    """Where rows go that are turned away meanwhile."""
    found: list[Any] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)


def split(rows: Any) -> Any:
    """Rows with a failure go to the dead letters; returned are the others, without the column."""
    if RECORD not in rows.columns:
        raise PipelineError(
            "rows can be turned away only while they have the column 'record': "
            "do it before you select other columns or aggregate"
        )
    found = _collected.get()
    if found is not None:
        found.append(rows.filter(f"{FAILURE} is not null").select(RECORD, FAILURE))
    return rows.filter(f"{FAILURE} is null").drop(FAILURE)
