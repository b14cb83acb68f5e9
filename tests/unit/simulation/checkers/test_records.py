"""`RecordsChecker`: each acknowledged record is exactly once at its offset."""

from simulation.checkers.records import RecordsChecker
from tests.unit.simulation.checkers.fake_context import FakeContext

PARTITION = ("t", 0)


def checker_of(context: FakeContext, *acknowledged: tuple[int, bytes]) -> RecordsChecker:
    checker = RecordsChecker(context)
    for offset, value in acknowledged:
        checker.sends(PARTITION, value)
        checker.acknowledge(PARTITION, offset, value)
    return checker


def test_log_with_all_acknowledged_records_is_accepted() -> None:
    context = FakeContext()
    checker = checker_of(context, (0, b"a"), (1, b"b"))
    checker.sends(PARTITION, b"unknown")
    checker.check({PARTITION: [(0, b"a"), (1, b"b"), (2, b"unknown")]})
    assert context.found == []


def test_lost_duplicate_moved_and_invented_records_are_violations() -> None:
    context = FakeContext()
    checker_of(context, (0, b"a")).check({PARTITION: []})
    checker_of(context, (0, b"a")).check({PARTITION: [(0, b"a"), (1, b"a")]})
    checker_of(context, (0, b"a")).check({PARTITION: [(1, b"a")]})
    checker_of(context).check({PARTITION: [(0, b"a")]})
    assert context.found == ["lost-write", "duplicate", "lost-write", "invented"]


def test_two_acknowledgements_of_one_offset_are_a_violation() -> None:
    context = FakeContext()
    checker_of(context, (0, b"a"), (0, b"b"))
    assert context.found == ["inconsistent-offsets"]
