"""Counting what happens in queues: by records, and nothing twice."""

from penstock.coordinator.queue_counts import QueueCounts
from penstock.queues.state import (
    Archived,
    Buried,
    Failure,
    Finished,
    Lease,
    Leased,
    Moved,
    Released,
    Returned,
)

FAILURE = Failure(1, 0, 0, 0)


def test_records_are_counted_by_what_became_of_them() -> None:
    counts = QueueCounts()
    counts.note([Leased((Lease(0, 4, "a", 0, 1), Lease(7, 7, "a", 0, 1))), Returned(4, 4)])
    counts.note([Finished(0, 1), Released(2, 2, FAILURE), Archived(3, FAILURE), Buried(), Moved(9)])
    assert counts == QueueCounts(delivered=5, finished=2, released=1, given_up=1, buried=1)
