"""Counting what happens in queues: by records, and nothing twice."""

import pytest

from penstock.coordinator.queues import open_queue
from penstock.coordinator.queues.open_queue import QueueCounters
from penstock.state.queues.delivery_state import (
    ArchivedRecord,
    DeadLettersWritten,
    DeliveryFailure,
    Finished,
    LeasedRange,
    LeaseState,
    Moved,
    Released,
    Returned,
)
from penstock.state.queues.state_shard import QueueKey

FAILURE = DeliveryFailure(1, 0, 0, 0)


def test_records_are_counted_by_outcome() -> None:
    counts = QueueCounters()
    counts.note(
        [LeasedRange((LeaseState(0, 4, "a", 0, 1), LeaseState(7, 7, "a", 0, 1))), Returned(4, 4)]
    )
    counts.note(
        [
            Finished(0, 1),
            Released(2, 2, FAILURE),
            ArchivedRecord(3, FAILURE),
            DeadLettersWritten(),
            Moved(9),
        ]
    )
    assert counts == QueueCounters(delivered=5, finished=2, released=1, given_up=1)


KEY, OTHER = QueueKey("g", bytes(16), 0), QueueKey("g", bytes(16), 1)


def test_time_to_ack_starts_at_delivery_and_age_at_the_append() -> None:
    counts = QueueCounters()
    counts.sample(KEY, 5, now_ms=1_000, age_s=10.0)
    counts.sample(KEY, 9, now_ms=1_000, age_s=10.0)
    counts.note([Finished(4, 6)], OTHER, 2_000)
    assert sum(counts.ack_seconds.counts) == 0
    counts.note([Finished(4, 6)], KEY, 3_000)
    assert (sum(counts.ack_seconds.counts), counts.ack_seconds.total) == (1, 2.0)
    assert counts.acked_age.total == 12.0
    counts.note([Finished(0, 1_000_000)], KEY, 5_000)
    assert counts.ack_seconds.total == 6.0
    counts.note([Finished(5, 5)], KEY, 9_000)
    assert sum(counts.ack_seconds.counts) == 2


def test_returned_records_are_not_counted_as_acknowledged() -> None:
    counts = QueueCounters()
    for offset in (1, 2):
        counts.sample(KEY, offset, now_ms=0, age_s=0.0)
    counts.note([Released(1, 1, FAILURE), Returned(2, 2)], KEY, 50)
    counts.note([Finished(1, 2)], KEY, 100)
    assert sum(counts.ack_seconds.counts) == 0


def test_samples_are_bounded_and_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_queue, "SAMPLES_MAX", 3)
    counts = QueueCounters()
    for offset in range(5):
        counts.sample(KEY, offset, now_ms=offset, age_s=0.0)
    counts.note([Finished(0, 4)], KEY, 10)
    assert sum(counts.ack_seconds.counts) == 3
    for offset in range(3):
        counts.sample(KEY, offset, now_ms=10, age_s=0.0)
    late_ms = 11 + open_queue.SAMPLE_MS_MAX
    counts.sample(OTHER, 7, now_ms=late_ms, age_s=0.0)
    counts.note([Finished(7, 7)], OTHER, late_ms)
    assert sum(counts.ack_seconds.counts) == 4
