"""Sieges in which nodes lose files between two lives keep every promise, and find planted bugs.

See `simulation.lost_state_faults` for what is lost, and `test_cluster_planted_bugs` for how bugs
are looked for.
"""

import gc
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation import lost_state_faults
from simulation.cluster_run import run_cluster
from simulation.results import Results, Violation
from tests.sim.loss_bugs import BUGS, Bug
from tests.sim.seeds import STALE, replayable, seeds, tell_if_stale

SEEDS = 10
SEEDS_MAX = 200
TABLE = Path(__file__).parents[2] / "docs/internals/simulation.md"
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


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(600)
def test_files_lost_by_one_node_lose_no_records(request: pytest.FixtureRequest) -> None:
    total = Results()
    chosen = seeds(SEEDS)
    for seed in chosen:
        with replayable(seed, request):
            try:
                total.add(run_cluster(seed, lost_state_faults.options_of(seed)).results)
            except Violation as violation:
                violation.add_note("\n".join(violation.journal))
                raise
    if len(chosen) == SEEDS:
        assert total.missing(COMMON) == []


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
            run_cluster(seed, lost_state_faults.options_of(seed))
        except Violation as found:
            return seed, str(found)
    return None


def test_table_in_the_docs_equals_this_list() -> None:
    text = TABLE.read_text()
    rows = [
        f"| {bug.plant.__name__.replace('_', ' ')} | {bug.checker} | {bug.first} |" for bug in BUGS
    ]
    assert [row for row in rows if row not in text] == []
