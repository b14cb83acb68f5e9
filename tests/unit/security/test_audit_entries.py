"""Audit entries: content, suppression of frequent events, bounds."""

from penstock.security import audit_entries
from penstock.security.audit_entries import (
    DENIED,
    DONE,
    RESOURCES_MAX,
    WAITING_MAX,
    WINDOW_MS,
    AuditedCall,
    Trail,
)


def audited(outcome: str = DONE, action: str = "CreateTopics", **more: object) -> AuditedCall:
    return AuditedCall("kafka", "User:ann", "10.0.0.1", action, outcome, **more)  # type: ignore[arg-type]


def test_entry_has_principal_action_resource_and_time() -> None:
    trail = Trail(3)
    trail.note(audited(resources=("topic:a",), codes=("X",)), 1000)
    (entry,) = trail.take(10, 1000)
    assert (entry.time_ms, entry.node, entry.door, entry.principal) == (
        1000,
        3,
        "kafka",
        "User:ann",
    )
    assert (entry.peer, entry.action, entry.outcome) == ("10.0.0.1", "CreateTopics", DONE)
    assert (entry.resources, entry.codes, entry.suppressed) == (("topic:a",), ("X",), 0)
    assert trail.take(10, 1000) == []


def test_actions_are_always_written_and_repeated_denials_counted() -> None:
    trail = Trail(1)
    for at in range(100):
        trail.note(audited(), at)
        trail.note(audited(DENIED), at)
    taken = trail.take(1000, 100)
    assert [entry.outcome for entry in taken].count(DONE) == 100
    assert [entry.suppressed for entry in taken if entry.outcome == DENIED] == [0]
    trail.note(audited(DENIED), WINDOW_MS)
    (later,) = trail.take(10, WINDOW_MS)
    assert later.suppressed == 99


def test_suppressed_entries_are_reported_when_the_window_ends() -> None:
    trail = Trail(1)
    for at in range(5):
        trail.note(audited(DENIED), at)
    assert len(trail.take(10, 5)) == 1
    assert trail.has_windows
    assert trail.take(10, WINDOW_MS - 1) == []
    (summary,) = trail.take(10, WINDOW_MS)
    assert (summary.suppressed, summary.time_ms) == (3, 4), "itself and three more"
    assert not trail.has_windows


def test_other_people_actions_and_resources_are_not_counted_together() -> None:
    trail = Trail(1)
    trail.note(audited(DENIED), 0)
    trail.note(audited(DENIED, "DeleteTopics"), 0)
    trail.note(audited(DENIED, resources=("topic:a",)), 0)
    trail.note(AuditedCall("http", "User:bob", "10.0.0.1", "CreateTopics", DENIED), 0)
    assert len(trail.take(10, 0)) == 4


def test_frequent_deed_is_counted_as_a_denial_is() -> None:
    trail = Trail(1)
    for _ in range(10):
        trail.note(audited(is_frequent=True), 0)
    assert len(trail.take(100, 0)) == 1


def test_audit_queue_is_bounded_and_reports_losses() -> None:
    trail = Trail(1)
    names = tuple(f"topic:{number}" for number in range(RESOURCES_MAX + 7))
    trail.note(audited(action="x" * 10_000, resources=names), 0)
    (entry,) = trail.take(1, 0)
    assert (len(entry.resources), entry.more_resources) == (RESOURCES_MAX, 7)
    assert len(entry.action) < 300
    for _ in range(WAITING_MAX + 5):
        trail.note(audited(), 0)
    assert (len(trail), trail.lost) == (WAITING_MAX, 5)
    taken = trail.take(WAITING_MAX, 0)
    assert (taken[-1].action, taken[-1].suppressed) == ("Overflow", 5)
    assert trail.lost == 0


def test_windows_are_bounded_too() -> None:
    trail = Trail(1)
    for number in range(audit_entries.WINDOWS_MAX + 10):
        trail.note(audited(DENIED, resources=(f"topic:{number}",)), 0)
        if number % 1000 == 0:
            trail.take(WAITING_MAX, 0)
    assert len(trail._windows) <= audit_entries.WINDOWS_MAX
