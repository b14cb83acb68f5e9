"""`OffsetsChecker`: positions as commits left them, and every way in which they may not be."""

import pytest

from simulation.checkers.offsets import OffsetsChecker
from tests.unit.simulation.checkers.stage import Stage

PLACE = ("t", 0)


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def checker(stage: Stage) -> OffsetsChecker:
    return OffsetsChecker(stage, "g")


def commit(stage: Stage, checker: OffsetsChecker, start: float, end: float, number: int = 1) -> int:
    stage.at(start)
    made = checker.asks(PLACE, number)
    stage.at(end)
    checker.acknowledged(made)
    return made.value


def test_the_last_commit_may_be_read_and_so_may_one_that_is_under_way(
    stage: Stage, checker: OffsetsChecker
) -> None:
    first = commit(stage, checker, 1, 2)
    checker.read(PLACE, first, 3)
    stage.at(4)
    unknown = checker.asks(PLACE, 1)
    checker.read(PLACE, first, 5)
    checker.read(PLACE, unknown.value, 6)
    assert stage.found == []


def test_an_acknowledged_commit_must_not_be_gone(stage: Stage, checker: OffsetsChecker) -> None:
    first = commit(stage, checker, 1, 2)
    commit(stage, checker, 3, 4)
    checker.read(PLACE, first, 5)
    assert stage.found == ["lost-commit"]


def test_nothing_is_not_what_was_committed(stage: Stage, checker: OffsetsChecker) -> None:
    commit(stage, checker, 1, 2)
    checker.read(PLACE, -1, 3)
    assert stage.found == ["lost-commit"]


def test_a_reader_that_asked_before_the_answer_may_see_either(
    stage: Stage, checker: OffsetsChecker
) -> None:
    first = commit(stage, checker, 1, 2)
    second = commit(stage, checker, 3, 6)
    checker.read(PLACE, first, 4)
    checker.read(PLACE, second, 4)
    assert stage.found == []


def test_a_refused_commit_must_not_count(stage: Stage, checker: OffsetsChecker) -> None:
    made = checker.asks(PLACE, 1)
    checker.refused(made)
    checker.read(PLACE, made.value, 1)
    assert stage.found == ["fencing"]


def test_an_older_generation_must_not_count_over_a_newer(
    stage: Stage, checker: OffsetsChecker
) -> None:
    stage.at(1)
    zombie = checker.asks(PLACE, 1)
    commit(stage, checker, 2, 3, number=2)
    checker.read(PLACE, zombie.value, 4)
    assert stage.found == ["fencing"]


def test_what_nobody_committed_is_invented(stage: Stage, checker: OffsetsChecker) -> None:
    checker.read(PLACE, 99, 1)
    assert stage.found == ["invented"]
