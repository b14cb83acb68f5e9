"""`RecordsChecker`: what was acknowledged is where it was said to be, and only there."""

from simulation.checkers.records import RecordsChecker
from tests.unit.simulation.checkers.stage import Stage

PLACE = ("t", 0)


def checker_of(stage: Stage, *acknowledged: tuple[int, bytes]) -> RecordsChecker:
    checker = RecordsChecker(stage)
    for offset, value in acknowledged:
        checker.sends(PLACE, value)
        checker.acknowledge(PLACE, offset, value)
    return checker


def test_a_log_with_all_that_was_acknowledged_is_well() -> None:
    stage = Stage()
    checker = checker_of(stage, (0, b"a"), (1, b"b"))
    checker.sends(PLACE, b"unknown")
    checker.check({PLACE: [(0, b"a"), (1, b"b"), (2, b"unknown")]})
    assert stage.found == []


def test_lost_doubled_moved_and_invented_records_are_found() -> None:
    stage = Stage()
    checker_of(stage, (0, b"a")).check({PLACE: []})
    checker_of(stage, (0, b"a")).check({PLACE: [(0, b"a"), (1, b"a")]})
    checker_of(stage, (0, b"a")).check({PLACE: [(1, b"a")]})
    checker_of(stage).check({PLACE: [(0, b"a")]})
    assert stage.found == ["lost-write", "duplicate", "lost-write", "invented"]


def test_two_acknowledgements_for_one_offset_are_found() -> None:
    stage = Stage()
    checker_of(stage, (0, b"a"), (0, b"b"))
    assert stage.found == ["inconsistent-offsets"]
