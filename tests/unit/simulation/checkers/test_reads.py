"""`ReadsChecker`: consistent and ordered reads, and ends that do not decrease."""

from simulation.checkers.reads import ReadsChecker
from tests.unit.simulation.checkers.fake_context import FakeContext

PARTITION = ("t", 0)


def test_ordered_reads_and_growing_ends_are_accepted() -> None:
    context = FakeContext()
    checker = ReadsChecker(context)
    checker.note_read("a", PARTITION, 0, b"x")
    checker.note_read("a", PARTITION, 1, b"y")
    checker.note_read("b", PARTITION, 0, b"x")
    checker.note_end(PARTITION, 1, 2, checker.floor(PARTITION))
    checker.note_end(PARTITION, 2, 2, checker.floor(PARTITION))
    checker.check({PARTITION: [(0, b"x"), (1, b"y"), (2, b"z")]})
    assert context.found == []


def test_inconsistent_skipped_and_repeated_reads_are_violations() -> None:
    context = FakeContext()
    checker = ReadsChecker(context)
    checker.note_read("a", PARTITION, 0, b"x")
    checker.note_read("b", PARTITION, 0, b"y")
    checker.note_read("a", PARTITION, 2, b"z")
    checker.note_read("a", PARTITION, 1, b"w")
    assert context.found == ["inconsistent-offsets", "poll-skip", "nonmonotonic-poll"]


def test_decreasing_end_is_a_violation_unless_from_an_old_leader() -> None:
    context = FakeContext()
    checker = ReadsChecker(context)
    checker.note_end(PARTITION, 2, 10, checker.floor(PARTITION))
    checker.note_end(PARTITION, 1, 5, checker.floor(PARTITION))
    assert context.found == []
    checker.note_end(PARTITION, 2, 9, checker.floor(PARTITION))
    checker.note_end(PARTITION, 3, 8, checker.floor(PARTITION))
    assert context.found == ["watermark", "watermark"]


def test_end_is_compared_with_ends_known_at_the_request() -> None:
    context = FakeContext()
    checker = ReadsChecker(context)
    floor = checker.floor(PARTITION)
    checker.note_end(PARTITION, 1, 10, floor)
    checker.note_end(PARTITION, 1, 9, floor)
    assert context.found == []


def test_read_record_missing_in_the_final_log_is_a_violation() -> None:
    context = FakeContext()
    checker = ReadsChecker(context)
    checker.note_read("a", PARTITION, 0, b"x")
    checker.check({PARTITION: []})
    assert context.found == ["lost-write"]
