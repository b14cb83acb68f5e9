"""The cluster runs can fail: each planted bug is found by a seed, and named.

`first` is a seed known to find it, tried before the others so that the suite stays quick; if it no
longer does, all seeds up to `SEEDS_MAX` are tried. A bug that none of them finds means that the
workloads or the checkers no longer see it, not that the bug is harmless.
"""

import gc
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation.cluster_run import run_cluster
from simulation.results import Violation
from tests.sim.cluster_bugs import BUGS, Bug
from tests.sim.seeds import STALE, tell_if_stale

SEEDS_MAX = 200
TABLE = Path(__file__).parents[2] / "docs/internals/simulation.md"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


# Leftovers of a bug are not the subject of the test.
@pytest.mark.filterwarnings("ignore", STALE)
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    found = _find(bug)
    gc.collect()  # Here, so that its leftovers are not attributed to another test.
    assert found is not None, f"not found in {SEEDS_MAX} seeds"
    seed, text = found
    print(f"{bug.plant.__name__}, seed {seed}: {text[:200]}")
    tell_if_stale(bug.plant.__name__, bug.first, seed)
    if seed == bug.first:
        assert text.partition(":")[0] == bug.checker


def _find(bug: Bug) -> tuple[int, str] | None:
    for seed in dict.fromkeys((bug.first, *range(SEEDS_MAX))):
        try:
            run_cluster(seed, bug.options(seed) if bug.options is not None else None)
        except Violation as found:
            return seed, str(found)
    return None


def test_special_options_find_nothing_without_a_bug() -> None:
    """The bug is found, and not something else that these seeds have."""
    special = {bug.options: bug.first for bug in BUGS if bug.options is not None}
    for options, seed in special.items():
        run_cluster(seed, options(seed))


def test_table_in_the_docs_equals_this_list() -> None:
    text = TABLE.read_text()
    rows = [
        f"| {bug.plant.__name__.replace('_', ' ')} | {bug.checker} | {bug.first} |" for bug in BUGS
    ]
    assert [row for row in rows if row not in text] == []
