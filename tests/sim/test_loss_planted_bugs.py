"""Runs in which nodes lose files between two lives keep every promise, and find planted bugs.

See `simulation.lost_state_faults` for what is lost, and `test_cluster_planted_bugs` for how bugs
are looked for.
"""

import pytest

from simulation import lost_state_faults
from simulation.cluster_run import run_cluster
from simulation.results import Results
from tests.sim.loss_bugs import BUGS, Bug
from tests.sim.seeds import STALE, replayable, seed_that_finds, seeds, undocumented

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 10
SEEDS_MAX = 200
COMMON = (
    "lost: partition_missing",
    "lost: logs_missing",
    "lost: segments_missing",
    "lost: bit_flipped",
    "lost: log_shortened",
    "lost: small_file_flipped",
    "lost: small_file_missing",
    "lost: directory_rolled_back",
)


@pytest.mark.timeout(600)
def test_files_lost_by_one_node_lose_no_records(request: pytest.FixtureRequest) -> None:
    total = Results()
    chosen = seeds(SEEDS)
    for seed in chosen:
        with replayable(seed, request):
            total.add(run_cluster(seed, lost_state_faults.options_of(seed)).results)
    if len(chosen) == SEEDS:
        assert total.missing(COMMON) == []


@pytest.mark.filterwarnings("ignore", STALE)
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)

    def run(seed: int) -> None:
        run_cluster(seed, lost_state_faults.options_of(seed))

    seed, found = seed_that_finds(run, bug, SEEDS_MAX)
    if seed == bug.first:
        assert str(found).partition(":")[0] == bug.checker


def test_table_in_the_docs_equals_this_list() -> None:
    assert undocumented((bug.plant.__name__, bug.checker, bug.first) for bug in BUGS) == []
