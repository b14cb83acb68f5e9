"""The checker of histories finds every anomaly that is planted, by its name, and no other."""

from collections.abc import Sequence

import pytest

from tests.chaos.history import (
    Acknowledged,
    Assigned,
    Committed,
    Event,
    Found,
    Polled,
    Record,
    Refused,
    Sent,
    check,
)

A = [Record("a", number) for number in range(6)]
B = [Record("b", number) for number in range(6)]


def names(events: Sequence[Event], log: Sequence[Record | None]) -> list[str]:
    """Of the anomalies, when partition 0 holds these records in the end (None: a gap)."""
    kept = {offset: record for offset, record in enumerate(log) if record is not None}
    return [anomaly.name for anomaly in check(events, {0: kept})]


def written(*records: Record, first: int = 0) -> list[Event]:
    """Sent and acknowledged, one after the other."""
    events: list[Event] = []
    for offset, record in enumerate(records, first):
        events += [Sent(0, record), Acknowledged(0, record, offset)]
    return events


def polled(consumer: str, *offsets: int) -> list[Event]:
    return [Polled(consumer, 0, offset, A[offset]) for offset in offsets]


def test_valid_history_has_no_anomaly() -> None:
    events = [
        *written(A[0], B[0], A[1]),
        Sent(0, B[1]),  # Unknown, and there.
        Sent(0, B[2]),  # Unknown, and not there.
        Refused(0, B[2]),
        Assigned("g", "c", (0,)),
        Polled("c", 0, 0, A[0]),
        Polled("c", 0, 1, B[0]),
        Committed("g", 0, 2),
        Assigned("g", "d", (0,)),
        Polled("d", 0, 2, A[1]),
        Polled("d", 0, 4, B[1]),
        Found("g", 0, 2),
    ]
    assert names(events, [A[0], B[0], A[1], None, B[1]]) == []


def test_reordered_answers_are_no_anomaly() -> None:
    events: list[Event] = [
        Sent(0, A[0]),
        Sent(0, A[1]),
        Acknowledged(0, A[1], 1),
        Acknowledged(0, A[0], 0),
    ]
    assert names(events, [A[0], A[1]]) == []


def test_record_with_an_unknown_offset_must_exist() -> None:
    events: list[Event] = [Sent(0, A[0]), Acknowledged(0, A[0], -1)]
    assert names(events, [A[0]]) == []
    assert names(events, []) == ["lost"]


def test_repeated_read_is_allowed_after_an_assignment() -> None:
    events = [
        *written(*A[:3]),
        Assigned("g", "c", (0,)),
        *polled("c", 0, 1, 2),
        Assigned("g", "c", (0,)),
        *polled("c", 0, 1, 2),
    ]
    assert names(events, list(A[:3])) == []


PLANTED: dict[str, tuple[Sequence[Event], Sequence[Record | None]]] = {
    "lost": (written(A[0], A[1]), [A[0]]),
    "moved": ([Sent(0, A[0]), Acknowledged(0, A[0], 1)], [A[0]]),
    "duplicate": (written(A[0], B[0]), [A[0], B[0], A[0]]),
    "reordered": ([Sent(0, A[0]), Sent(0, A[1])], [A[1], A[0]]),
    "phantom": (written(A[0]), [A[0], B[0]]),
    "refused but written": ([Sent(0, A[0]), Refused(0, A[0])], [A[0]]),
    "dirty read": (
        [*written(A[0]), Assigned("g", "c", (0,)), *polled("c", 0, 1)],
        [A[0]],
    ),
    "skipped": (
        [
            *written(*A[:3]),
            Assigned("g", "c", (0,)),
            *polled("c", 0, 2),
            Assigned("g", "d", (0,)),
            *polled("d", 0, 1, 2),
        ],
        list(A[:3]),
    ),
    "read went back": (
        [*written(*A[:2]), Assigned("g", "c", (0,)), *polled("c", 0, 1, 0)],
        list(A[:2]),
    ),
    "committed offset went back": (
        [
            *written(*A[:2]),
            Assigned("g", "c", (0,)),
            *polled("c", 0, 1),
            Committed("g", 0, 2),
            Assigned("g", "d", (0,)),
            *polled("d", 0, 1),
        ],
        list(A[:2]),
    ),
    "never delivered": (
        [*written(*A[:3]), Assigned("g", "c", (0,)), *polled("c", 0, 1)],
        list(A[:3]),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_anomaly_is_named(name: str) -> None:
    assert names(*PLANTED[name]) == [name]


def test_offset_below_an_earlier_one_went_back() -> None:
    events: list[Event] = [
        Sent(0, A[0]),
        Sent(0, A[1]),
        Acknowledged(0, A[0], 1),
        Acknowledged(0, A[1], 0),
    ]
    assert names(events, [A[1], A[0]]) == ["offset went back", "reordered"]


def test_committed_offset_reported_too_low_went_back() -> None:
    assert names([Committed("g", 0, 2), Found("g", 0, 1)], []) == ["committed offset went back"]


def test_record_overwritten_after_a_read_is_lost_and_a_dirty_read() -> None:
    events = [
        *written(A[0]),
        Assigned("g", "c", (0,)),
        *polled("c", 0),
        Sent(0, B[0]),
        Acknowledged(0, B[0], 0),
        Assigned("g", "d", (0,)),
        Polled("d", 0, 0, B[0]),
    ]
    assert names(events, [B[0]]) == ["lost", "dirty read"]


def test_partitions_are_distinguished() -> None:
    events: list[Event] = [Sent(0, A[0]), Sent(1, A[0])]
    events += [Acknowledged(0, A[0], 0), Acknowledged(1, A[0], 0)]
    assert check(events, {0: {0: A[0]}, 1: {0: A[0]}}) == []
    lost = check(events, {0: {0: A[0]}, 1: {}})
    assert [str(anomaly) for anomaly in lost] == ["lost: 1, such as a 0, acknowledged at 0 of [1]"]
