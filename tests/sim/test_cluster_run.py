"""A cluster keeps its promises, whatever happens to its machines, its network and its store.

See `simulation.cluster_run` for what happens and `simulation.checkers` for what is checked. The
planted bugs of `test_cluster_planted_bugs` show that these checks find what they are for.
"""

import pytest

from simulation.cluster_run import run_cluster
from simulation.results import Results
from tests.sim.seeds import replayable, seeds

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 200
SEEDS_PER_TEST = 10
COMMON = (
    "leader elected",
    "leader elected from the eligible",
    "isr shrunk",
    "isr expanded",
    "log cut",
    "eligible leaders kept",
    "move finished",
    "node started again",
    "node failed: NodeFailed",
    "ListOffsets OFFSET_NOT_AVAILABLE",
    "ListOffsets NOT_LEADER_OR_FOLLOWER",
)
"""Situations that ten seeds or so reach; `simulation.cluster_run.ALL_POINTS` is the long list."""

_total = Results()


def _chunks() -> list[list[int]]:
    every = seeds(SEEDS)
    return [every[at : at + SEEDS_PER_TEST] for at in range(0, len(every), SEEDS_PER_TEST)]


@pytest.mark.parametrize("chunk", _chunks(), ids=lambda chunk: f"{chunk[0]}-{chunk[-1]}")
def test_every_invariant_holds_under_faults(
    chunk: list[int], request: pytest.FixtureRequest
) -> None:
    for seed in chunk:
        with replayable(seed, request):
            _total.add(run_cluster(seed).results)


def test_runs_reach_the_faults_they_aim_at() -> None:
    if _total.seeds < SEEDS:
        pytest.skip("only some seeds were run in this process")
    print(_total.report())
    assert _total.missing(COMMON) == []
    assert _total.faults.total() > 1_000


def test_seed_repeats_its_run() -> None:
    assert run_cluster(3).trace == run_cluster(3).trace
