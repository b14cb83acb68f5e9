"""Seeds of simulated tests, and how to repeat one of them.

- by default a few, so that the whole suite stays quick;
- `PENSTOCK_SIM_SEEDS=500` runs that many of each;
- `PENSTOCK_SIM_SEED=17` runs just that one, exactly as it ran before.
"""

import gc
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from simulation.results import Violation

TABLES = Path(__file__).parents[2] / "docs/internals/simulation.md"


class Planted(Protocol):
    """A change of the code, and a seed that is known to find it."""

    @property
    def plant(self) -> Callable[[pytest.MonkeyPatch], Any]: ...

    @property
    def first(self) -> int: ...


def seeds(default: int) -> list[int]:
    one = os.environ.get("PENSTOCK_SIM_SEED")
    if one is not None:
        return [int(one)]
    return list(range(int(os.environ.get("PENSTOCK_SIM_SEEDS", default))))


STALE = "default:seed .* no longer finds"
"""The warning filter of tests that call `tell_if_stale`: it is shown, and fails nothing."""


def tell_if_stale(bug: str, first: int, found: int) -> None:
    """Warns when the known seed of a planted bug no longer finds it: trying others takes long.

    Any change of the simulation may cause that. The fix is to write down the other seed.
    """
    if first != found:
        warnings.warn(f"seed {first} no longer finds {bug}, but {found} does", stacklevel=2)


def seed_that_finds(
    run: Callable[[int], object], bug: Planted, seeds_max: int
) -> tuple[int, Violation]:
    """Runs the known seed of a planted bug, then all others; returns the first that finds the bug.

    A bug that none of them finds means that the workloads or the checkers no longer see it, not
    that the bug is harmless.
    """
    for seed in dict.fromkeys((bug.first, *range(seeds_max))):
        try:
            run(seed)
        except Violation as found:
            print(f"{bug.plant.__name__}, seed {seed}: {str(found)[:200]}")
            tell_if_stale(bug.plant.__name__, bug.first, seed)
            return seed, found
        finally:
            gc.collect()  # Here, so that no other test is blamed for what the bug left.
    raise AssertionError(f"{bug.plant.__name__} was not found in {seeds_max} seeds")


def undocumented(rows: Iterable[tuple[str, *tuple[object, ...]]]) -> list[str]:
    """Returns the rows that the tables in the documentation of the simulation lack."""
    text = TABLES.read_text()
    lines = [f"| {' | '.join((name.replace('_', ' '), *map(str, rest)))} |" for name, *rest in rows]
    return [line for line in lines if line not in text]


@contextmanager
def replayable(seed: int, request: pytest.FixtureRequest) -> Iterator[None]:
    """Adds to any failure its journal, and the command that repeats it."""
    try:
        yield
    except Exception as error:
        if isinstance(error, Violation):
            error.add_note("\n".join(error.journal))
        test = request.node.nodeid.partition("[")[0]
        error.add_note(f"seed {seed} failed; again: PENSTOCK_SIM_SEED={seed} pytest {test}")
        raise
