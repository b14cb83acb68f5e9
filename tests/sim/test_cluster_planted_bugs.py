"""The cluster runs can fail: each planted bug is found by a seed, and named.

`first` is a seed known to find it, tried before the others so that the suite stays quick; if it no
longer does, all seeds up to `SEEDS_MAX` are tried. A bug that none of them finds means that the
workloads or the checkers no longer see it, not that the bug is harmless.
"""

import pytest

from simulation.cluster_run import run_cluster
from tests.sim.cluster_bugs import BUGS, Bug
from tests.sim.seeds import STALE, seed_that_finds, undocumented

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS_MAX = 200


# Leftovers of a bug are not the subject of the test.
@pytest.mark.filterwarnings("ignore", STALE)
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)

    def run(seed: int) -> None:
        run_cluster(seed, bug.options(seed) if bug.options is not None else None)

    seed, found = seed_that_finds(run, bug, SEEDS_MAX)
    if seed == bug.first:
        assert str(found).partition(":")[0] == bug.checker


def test_special_options_find_nothing_without_a_bug() -> None:
    """The bug is found, and not something else that these seeds have."""
    special = {bug.options: bug.first for bug in BUGS if bug.options is not None}
    for options, seed in special.items():
        run_cluster(seed, options(seed))


def test_table_in_the_docs_equals_this_list() -> None:
    assert undocumented((bug.plant.__name__, bug.checker, bug.first) for bug in BUGS) == []
