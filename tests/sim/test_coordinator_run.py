"""Groups and transactions on a real node keep their promises, whatever happens to it.

See `simulation.coordinator_run` for what happens and `simulation.checkers` for what is checked. The
planted bugs of `test_coordinator_planted_bugs` show that these checks find what they are for, and
`soak` runs as many seeds as there is time for.
"""

import os
import subprocess
import sys

import pytest

from simulation.coordinator_run import Options, run_seed
from simulation.results import Results
from tests.sim.seeds import replayable, seeds

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 16
THREE_NODES = Options(node_ids=(1, 2, 3), chaos_s=25.0, records=30, cut_ratio=0.0)
CUT_EVERYWHERE = Options(chaos_s=12.0, records=15, cut_ratio=1.0)
REPLACED_BEFORE_REJOINING = 9_000_396
"""A static member that had to give partitions up was replaced before it joined again: they had no
owner, and the group never came to rest."""
COMMON = (
    "node started again",
    "replay compared",
    "unreplicated compared",
    "compaction",
    "member expired",
    "old commit tried",
    "zombie fenced",
    "transaction timed out",
    "OffsetCommit ILLEGAL_GENERATION",
    "OffsetCommit STALE_MEMBER_EPOCH",
    "OffsetFetch UNSTABLE_OFFSET_COMMIT",
    "Produce INVALID_PRODUCER_EPOCH",
    "TxnOffsetCommit ILLEGAL_GENERATION",
)
"""Situations that even a few seeds must reach; `simulation.coordinator_run.POINTS` is the long
list.
"""

SCRIPT = "from simulation.coordinator_run import run_seed; print(run_seed(3).trace)"

_total = Results()


def _run(seed: int, request: pytest.FixtureRequest, options: Options | None = None) -> Results:
    with replayable(seed, request):
        outcome = run_seed(seed, options)
    print(f"seed {seed}: trace {outcome.trace}\n{outcome.results.report()}")
    return outcome.results


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_every_invariant_holds(seed: int, request: pytest.FixtureRequest) -> None:
    results = _run(seed, request)
    assert results.operations.total() > 200
    assert results.faults.total() > 10
    _total.add(results)


def test_group_settles_after_a_static_member_is_replaced_before_it_rejoins(
    request: pytest.FixtureRequest,
) -> None:
    results = _run(REPLACED_BEFORE_REJOINING, request)
    assert results.faults["static member comes back"] > 0


@pytest.mark.parametrize("seed", seeds(2))
def test_power_cut_at_any_disk_operation_keeps_committed_state(
    seed: int, request: pytest.FixtureRequest
) -> None:
    results = _run(seed, request, CUT_EVERYWHERE)
    assert results.faults["power cut on a copy"] > 200


@pytest.mark.parametrize("seed", seeds(2))
def test_every_invariant_holds_with_three_nodes(seed: int, request: pytest.FixtureRequest) -> None:
    results = _run(seed, request, THREE_NODES)
    assert results.operations.total() > 200


def test_seeds_reach_the_faults_they_aim_at() -> None:
    if _total.seeds < SEEDS:
        pytest.skip("only some seeds were run")
    assert _total.missing(COMMON) == []


def test_seed_gives_the_same_run_in_every_process() -> None:
    traces = {run_seed(3).trace}
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", SCRIPT],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        traces.add(done.stdout.strip())
    assert len(traces) == 1, traces
