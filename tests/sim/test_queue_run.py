"""A queue keeps its promises, whatever happens to nodes, members, clocks and the network.

See `simulation.queue_run` for what happens and `simulation.checkers.queue_deliveries` for what is
promised. The planted bugs show that the checks find what they are for.
"""

import pytest

from simulation.queue_run import POINTS, run_queue
from simulation.results import Results
from tests.sim.seeds import replayable, seeds

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 20
SEEDS_PER_TEST = 5

_total = Results()


def _chunks() -> list[list[int]]:
    every = seeds(SEEDS)
    return [every[at : at + SEEDS_PER_TEST] for at in range(0, len(every), SEEDS_PER_TEST)]


@pytest.mark.parametrize("chunk", _chunks(), ids=lambda chunk: f"{chunk[0]}-{chunk[-1]}")
def test_every_message_is_settled_as_promised(
    chunk: list[int], request: pytest.FixtureRequest
) -> None:
    for seed in chunk:
        with replayable(seed, request):
            _total.add(run_queue(seed).results)


def test_runs_reach_the_faults_they_aim_at() -> None:
    if _total.seeds < SEEDS:
        pytest.skip("only some seeds were run in this process")
    print(_total.report())
    assert _total.missing(POINTS) == []


def test_seed_repeats_its_run() -> None:
    assert run_queue(3).trace == run_queue(3).trace
