"""The test of cut networks can fail: each bug in its rules that is put in on purpose is found."""

import gc

import pytest

from simulation.network_cuts import run_cut
from simulation.results import Violation
from tests.sim.cut_bugs import BUGS, CutBug
from tests.sim.seeds import undocumented

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS_MAX = 20


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_planted_bug_is_found(bug: CutBug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    found = next((name for seed in range(SEEDS_MAX) if (name := _find(bug, seed))), None)
    gc.collect()  # Here, so that its leftovers are not attributed to another test.
    assert found == bug.checker


def _find(bug: CutBug, seed: int) -> str | None:
    try:
        run_cut(bug.cut, seed)
    except Violation as found:
        return str(found).partition(":")[0]
    return None


def test_runs_without_a_bug_find_nothing() -> None:
    for cut in dict.fromkeys(bug.cut for bug in BUGS):
        run_cut(cut)


def test_table_in_the_docs_equals_this_list() -> None:
    assert undocumented((bug.plant.__name__, bug.checker) for bug in BUGS) == []
