"""`ReadsChecker`: what readers were given stays true, comes in order, and does not go back."""

from simulation.checkers.reads import ReadsChecker
from tests.unit.simulation.checkers.stage import Stage

PLACE = ("t", 0)


def test_records_in_order_and_ends_that_grow_are_well() -> None:
    stage = Stage()
    checker = ReadsChecker(stage)
    checker.saw("a", PLACE, 0, b"x")
    checker.saw("a", PLACE, 1, b"y")
    checker.saw("b", PLACE, 0, b"x")
    checker.told(PLACE, 1, 2, checker.floor(PLACE))
    checker.told(PLACE, 2, 2, checker.floor(PLACE))
    checker.check({PLACE: [(0, b"x"), (1, b"y"), (2, b"z")]})
    assert stage.found == []


def test_another_value_a_gap_and_a_step_back_are_found() -> None:
    stage = Stage()
    checker = ReadsChecker(stage)
    checker.saw("a", PLACE, 0, b"x")
    checker.saw("b", PLACE, 0, b"y")
    checker.saw("a", PLACE, 2, b"z")
    checker.saw("a", PLACE, 1, b"w")
    assert stage.found == ["inconsistent-offsets", "poll-skip", "nonmonotonic-poll"]


def test_an_end_that_goes_back_is_found_unless_the_leader_is_an_old_one() -> None:
    stage = Stage()
    checker = ReadsChecker(stage)
    checker.told(PLACE, 2, 10, checker.floor(PLACE))
    checker.told(PLACE, 1, 5, checker.floor(PLACE))
    assert stage.found == []
    checker.told(PLACE, 2, 9, checker.floor(PLACE))
    checker.told(PLACE, 3, 8, checker.floor(PLACE))
    assert stage.found == ["watermark", "watermark"]


def test_an_answer_is_measured_by_what_was_known_when_it_was_asked_for() -> None:
    stage = Stage()
    checker = ReadsChecker(stage)
    floor = checker.floor(PLACE)
    checker.told(PLACE, 1, 10, floor)
    checker.told(PLACE, 1, 9, floor)
    assert stage.found == []


def test_a_record_that_was_read_and_is_gone_is_found() -> None:
    stage = Stage()
    checker = ReadsChecker(stage)
    checker.saw("a", PLACE, 0, b"x")
    checker.check({PLACE: []})
    assert stage.found == ["lost-write"]
