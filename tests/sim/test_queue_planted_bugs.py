"""The queue runs can fail: each planted bug is found within 200 seeds."""

import pytest

from simulation.queue_run import run_queue
from tests.sim.queue_bugs import BUGS, QueueBug
from tests.sim.seeds import STALE, seed_that_finds, undocumented

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS_MAX = 200


@pytest.mark.filterwarnings(STALE)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_planted_bug_is_found(bug: QueueBug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    seed_that_finds(run_queue, bug, SEEDS_MAX)


def test_table_in_the_docs_equals_this_list() -> None:
    assert undocumented((bug.plant.__name__, bug.checker, bug.first) for bug in BUGS) == []
