"""Which seeds a simulated test runs, and how to run one of them again.

- by default a few, so that the whole suite stays quick;
- `PENSTOCK_SIM_SEEDS=500` runs that many of each;
- `PENSTOCK_SIM_SEED=17` runs just that one, exactly as it ran before.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


def seeds(default: int) -> list[int]:
    one = os.environ.get("PENSTOCK_SIM_SEED")
    if one is not None:
        return [int(one)]
    return list(range(int(os.environ.get("PENSTOCK_SIM_SEEDS", default))))


@contextmanager
def replayable(seed: int, request: pytest.FixtureRequest) -> Iterator[None]:
    """Adds to any failure the command that repeats it."""
    try:
        yield
    except Exception as error:
        test = request.node.nodeid.partition("[")[0]
        error.add_note(f"seed {seed} failed; again: PENSTOCK_SIM_SEED={seed} pytest {test}")
        raise
