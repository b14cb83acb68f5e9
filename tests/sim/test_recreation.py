"""A committed position belongs to a topic, not to its name, whatever the coordinator missed.

See `simulation.workloads.topic_recreator` for what happens and
`simulation.checkers.offset_topic_ids` for what is promised. The bugs below, put in on purpose, show
that the checks find what they are for.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from penstock.base.state_machine import Record
from penstock.state.groups import offsets
from penstock.state.groups.config import TopicCatalogue
from penstock.state.groups.offsets import GroupOffsets
from penstock.state.groups.records import OffsetValue
from simulation.coordinator_run import Options, run_seed
from simulation.topic_recreation import RecreationRun
from tests.sim.seeds import STALE, replayable, seed_that_finds, seeds

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 16
SEEDS_MAX = 200
OPTIONS = Options(node_ids=(1, 2, 3), groups=0, has_copiers=False, cut_ratio=0.0)

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_committed_offsets_belong_to_topics(seed: int, request: pytest.FixtureRequest) -> None:
    with replayable(seed, request):
        results = run_seed(seed, OPTIONS, RecreationRun).results
    assert results.points["topic created anew"]
    assert results.points["OffsetCommit NONE"]


def positions_belong_to_names(patch: Patch) -> None:
    """As it was."""
    patch.setattr(OffsetValue, "is_in", lambda self, topic_id: True)


def topic_ids_are_forgotten_by_a_crash(patch: Patch) -> None:
    real = GroupOffsets.apply_offset

    def planted(self: GroupOffsets, key: bytes, value: bytes | None) -> None:
        real(self, key, value)
        for places in self.committed.values():
            for place, kept in places.items():
                places[place] = _replaced(kept, b"")

    patch.setattr(GroupOffsets, "apply_offset", planted)


def _replaced(value: Any, topic_id: bytes) -> Any:
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    return type(value)(**{**fields, "topic_id": topic_id})


def transactions_keep_no_topic_id(patch: Patch) -> None:
    real = offsets.commit_pending

    def planted(offsets: GroupOffsets, request: Any, topics: TopicCatalogue, *rest: Any) -> Any:
        return real(offsets, request, TopicCatalogue(), *rest)

    patch.setattr(offsets, "commit_pending", planted)


def a_transactions_end_takes_the_topic_of_the_name(patch: Patch) -> None:
    real = offsets.complete

    def planted(
        offsets: GroupOffsets,
        producer: int,
        epoch: int,
        is_ok: bool,
        topics: TopicCatalogue,
        now_ms: int,
    ) -> list[Record]:
        held = offsets.pending.get(producer, {})
        for place, value in held.items():
            held[place] = _replaced(value, topics.id_of(place[1]))
        return real(offsets, producer, epoch, is_ok, topics, now_ms)

    patch.setattr("penstock.state.groups.shard.complete", planted)


class Bug(NamedTuple):
    """A change of the code, and a seed that finds it."""

    plant: Callable[[Patch], None]
    first: int


BUGS = [
    Bug(positions_belong_to_names, 2),
    Bug(topic_ids_are_forgotten_by_a_crash, 2),
    Bug(transactions_keep_no_topic_id, 7),
    Bug(a_transactions_end_takes_the_topic_of_the_name, 7),
]


@pytest.mark.filterwarnings(STALE)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_planted_bug_is_found(bug: Bug, monkeypatch: Patch) -> None:
    bug.plant(monkeypatch)
    seed_that_finds(lambda seed: run_seed(seed, OPTIONS, RecreationRun), bug, SEEDS_MAX)
