"""Inspection of a queue, and redelivery of finished records."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.state.queues.delivery_state import (
    ArchivedRecord,
    DeliveryFailure,
    Finished,
    LeasedRange,
    LeaseState,
    QueueState,
    Released,
    Snapshot,
)
from penstock.state.queues.inspection import (
    Run,
    RunState,
    reoffered,
    unfinished_count,
    unfinished_runs,
)

FAILED = DeliveryFailure(2, 5_000, 1_000, 1_500, "Timeout", "late")
runs = st.tuples(st.integers(0, 40), st.integers(0, 10)).map(lambda run: (run[0], sum(run)))


def kept_with(*finished: tuple[int, int], start: int = 0) -> QueueState:
    kept = QueueState(Snapshot(start))
    for first, last in finished:
        kept.apply(Finished(first, last))
    return kept


def offsets_of(found: list[Run]) -> list[int]:
    return [offset for run in found for offset in range(run.first, run.last + 1)]


def test_states_break_runs_and_nothing_finished_is_shown() -> None:
    kept = kept_with((4, 5))
    kept.apply(LeasedRange((LeaseState(1, 2, "m", 9_000, 1),)))
    kept.apply(Released(7, 7, FAILED))
    kept.apply(ArchivedRecord(8, FAILED))
    found, following = unfinished_runs(kept, 0, 12, 100)
    assert found == [
        Run(0, 0, RunState.WAITING),
        Run(1, 2, RunState.LEASED, 1, 9_000, "m"),
        Run(3, 3, RunState.WAITING),
        Run(6, 6, RunState.WAITING),
        Run(7, 7, RunState.FAILED, 2, 5_000),
        Run(8, 8, RunState.GIVEN_UP, 2),
        Run(9, 11, RunState.WAITING),
    ]
    assert following is None
    assert unfinished_count(kept, 12) == 10


def test_lease_after_a_failure_is_shown_as_the_lease() -> None:
    kept = kept_with()
    kept.apply(Released(0, 0, FAILED))
    kept.apply(LeasedRange((LeaseState(0, 3, "m", 9_000, 3),)))
    found, _ = unfinished_runs(kept, 0, 4, 10)
    assert found == [Run(0, 3, RunState.LEASED, 3, 9_000, "m")]


def test_page_has_the_start_of_the_next() -> None:
    kept = kept_with((1, 1), (3, 3), (5, 5))
    found, following = unfinished_runs(kept, 0, 8, 2)
    assert (offsets_of(found), following) == ([0, 2], 4)
    found, following = unfinished_runs(kept, 4, 8, 2)
    assert (offsets_of(found), following) == ([4, 6, 7], None)


@given(st.lists(runs, max_size=8), runs)
def test_offering_again_undoes_only_finishing(
    finished: list[tuple[int, int]], again: tuple[int, int]
) -> None:
    kept = kept_with(*finished)
    before = set(offsets_of(unfinished_runs(kept, 0, 60, 1_000)[0]))
    snapshot, changed = reoffered(kept.snapshot(), *again)
    after = QueueState(snapshot)
    wanted = set(range(again[0], again[1] + 1))
    assert set(offsets_of(unfinished_runs(after, 0, 60, 1_000)[0])) == before | wanted
    assert changed == len(wanted - before)
    assert after.start not in after.finished
    assert unfinished_count(after, 60) == len(before | wanted)


def test_leased_and_rejected_records_stay_when_neighbours_are_offered_again() -> None:
    kept = kept_with((0, 3))
    kept.apply(LeasedRange((LeaseState(4, 4, "m", 9_000, 1),)))
    kept.apply(ArchivedRecord(5, FAILED))
    snapshot, changed = reoffered(kept.snapshot(), 2, 6)
    assert changed == 2
    found, _ = unfinished_runs(QueueState(snapshot), 0, 7, 100)
    assert found == [
        Run(2, 3, RunState.WAITING),
        Run(4, 4, RunState.LEASED, 1, 9_000, "m"),
        Run(5, 5, RunState.GIVEN_UP, 2),
        Run(6, 6, RunState.WAITING),
    ]
