"""Seeds of simulated tests, and how to repeat one of them.

- by default a few, so that the whole suite stays quick;
- `PENSTOCK_SIM_SEEDS=500` runs that many of each;
- `PENSTOCK_SIM_SEED=17` runs just that one, exactly as it ran before.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


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


@contextmanager
def replayable(seed: int, request: pytest.FixtureRequest) -> Iterator[None]:
    """Adds to any failure the command that repeats it."""
    try:
        yield
    except Exception as error:
        test = request.node.nodeid.partition("[")[0]
        error.add_note(f"seed {seed} failed; again: PENSTOCK_SIM_SEED={seed} pytest {test}")
        raise
