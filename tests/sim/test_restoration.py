"""A metadata store that was put back to a backup: no node goes on with it, and nothing is lost.

See `simulation.store_restoration` for what happens and what is promised. The bugs below, put in on
purpose, show that the checks find what they are for.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from penstock.cluster.metadata import known_metadata as known
from penstock.cluster.metadata import metadata_rebuild
from penstock.cluster.metadata.metadata_rebuild import LogReport
from penstock.node import metadata_check
from simulation.coordinator_run import Options, run_seed
from simulation.store_restoration import RestorationRun
from tests.sim.seeds import STALE, replayable, seed_that_finds, seeds

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 12
SEEDS_MAX = 60

Patch = pytest.MonkeyPatch


def options() -> Options:
    return Options(
        node_ids=(1, 2, 3),
        groups=0,
        has_copiers=False,
        cut_ratio=0.0,
        records=20,
        keeps_metadata=True,
    )


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_restored_store_is_refused_and_recovered(seed: int, request: pytest.FixtureRequest) -> None:
    with replayable(seed, request):
        results = run_seed(seed, options(), RestorationRun).results
    assert results.points["refused"] == 3
    assert results.points["recovered"]


def an_older_store_is_served(patch: Patch) -> None:
    """As it was."""
    patch.setattr(metadata_check, "compare", lambda *arguments: ([], []))


def producer_ids_begin_again(patch: Patch) -> None:
    """As it was: neither recovered nor compared."""
    patch.setattr(metadata_rebuild._Planning, "_raise_producer_ids", lambda self: None)
    real = known.findings

    def planted(*arguments: Any) -> list[str]:
        return [text for text in real(*arguments) if "producer id" not in text]

    patch.setattr("penstock.node.metadata_check.findings", planted)


def first_reporter_is_in_sync(patch: Patch) -> None:
    patch.setattr(LogReport, "rank", property(lambda self: (0, 0)))


def the_shortest_log_is_the_best(patch: Patch) -> None:
    patch.setattr(LogReport, "rank", property(lambda self: (0, -self.end_offset)))


def deleted_topics_come_back(patch: Patch) -> None:
    patch.setattr(metadata_rebuild._Planning, "_drop_deleted_topics", lambda self, known: None)


class Bug(NamedTuple):
    """A change of the code, and a seed that finds it."""

    plant: Callable[[Patch], None]
    first: int


BUGS = [
    Bug(an_older_store_is_served, 0),
    Bug(producer_ids_begin_again, 0),
    Bug(first_reporter_is_in_sync, 19),
    Bug(the_shortest_log_is_the_best, 1),
    Bug(deleted_topics_come_back, 0),
]


@pytest.mark.filterwarnings(STALE)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_planted_bug_is_found(bug: Bug, monkeypatch: Patch) -> None:
    bug.plant(monkeypatch)
    seed_that_finds(lambda seed: run_seed(seed, options(), RestorationRun), bug, SEEDS_MAX)
