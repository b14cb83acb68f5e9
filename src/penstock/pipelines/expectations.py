"""Expectations: conditions on the rows that a stage returns, counted in its status.

    @pipeline.extract("orders", schema="id string, quantity int", to="orders.valid")
    @expect("positive", "quantity > 0", on_fail="dlq")
    def validate(orders):
        return orders

A row for which the condition is false or null has failed. All expectations of a stage are checked
on the same rows, so each count is independent of the others. Independent of Spark.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from penstock.pipelines.endpoints import PipelineError

DROP: Final = "drop"
DLQ: Final = "dlq"
WARN: Final = "warn"
FAIL: Final = "fail"
ACTIONS: Final = (DROP, DLQ, WARN, FAIL)
EXPECTATIONS_MAX: Final = 50
"""Maximum of a stage; each has two columns in Spark's metrics."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_ATTRIBUTE: Final = "__expectations__"
STAGE_MARK: Final = "__is_stage__"
"""Attribute of functions that are stages."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Expectation:
    """Condition in SQL, and what happens to the rows that fail it. Decorates a stage's function."""

    name: str
    condition: str
    on_fail: str

    def __call__(self, function: F) -> F:
        if getattr(function, STAGE_MARK, False):
            raise PipelineError(
                f"expectation {self.name!r} is above the decorator of its stage, which does not "
                "see it: put it directly above the function"
            )
        # Decorators are applied from the bottom up.
        setattr(function, _ATTRIBUTE, (self, *expectations_of(function)))
        return function


def expect(name: str, condition: str, *, on_fail: str = WARN) -> Expectation:
    """Declares an expectation on the rows that a stage returns.

    `on_fail`: `warn` counts and keeps a failed row, `drop` leaves it out, `dlq` sends its record to
    the stage's dead letters, `fail` ends the stage.
    """
    if not _NAME.fullmatch(name):
        raise PipelineError(
            f"invalid name of an expectation {name!r}: use letters, digits, '-' and '_'"
        )
    if not condition.strip():
        raise PipelineError(f"expectation {name!r}: the condition is empty")
    if on_fail not in ACTIONS:
        raise PipelineError(
            f"expectation {name!r}: on_fail must be one of {', '.join(ACTIONS)}, not {on_fail!r}"
        )
    return Expectation(name, condition, on_fail)


def expectations_of(function: Callable[..., Any]) -> tuple[Expectation, ...]:
    """Expectations that decorate a function, in the order of the source."""
    found: tuple[Expectation, ...] = getattr(function, _ATTRIBUTE, ())
    return found


def checked(where: str, found: Sequence[Expectation]) -> tuple[Expectation, ...]:
    """Refuses too many expectations, and names that are used twice."""
    names = [one.name for one in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PipelineError(f"{where} has two expectations {twice!r}")
    if len(found) > EXPECTATIONS_MAX:
        raise PipelineError(f"{where} has more than {EXPECTATIONS_MAX} expectations")
    return tuple(found)


def pass_rate(passed: int, failed: int) -> float | None:
    """Share of rows that passed; None before the first row."""
    return passed / (passed + failed) if passed + failed else None
