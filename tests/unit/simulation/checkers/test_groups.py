"""`GroupChecker`: who owns what, as members were told."""

import pytest

from simulation.checkers.groups import GroupChecker
from tests.unit.simulation.checkers.stage import Stage

PLACE = ("t", 0)


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def checker(stage: Stage) -> GroupChecker:
    return GroupChecker(stage, "g")


def test_two_confirmed_owners_at_once_are_found(stage: Stage, checker: GroupChecker) -> None:
    stage.at(1)
    checker.granted("a", set(), {PLACE})
    stage.at(5)
    checker.granted("b", set(), {PLACE})
    checker.confirmed("b", {PLACE}, 6)
    assert stage.found == []
    checker.confirmed("a", {PLACE}, 7)
    assert stage.found == ["owners"]


def test_a_zombie_that_only_believes_is_no_owner(stage: Stage, checker: GroupChecker) -> None:
    stage.at(1)
    checker.granted("a", set(), {PLACE})
    checker.confirmed("a", {PLACE}, 2)
    stage.at(5)
    checker.granted("b", set(), {PLACE})
    checker.confirmed("b", {PLACE}, 6)
    assert stage.found == []


def test_a_generation_that_goes_back_is_found(stage: Stage, checker: GroupChecker) -> None:
    stage.at(1)
    checker.numbered(3, 0, is_group_wide=True)
    checker.numbered(2, 0.5, is_group_wide=True)
    assert stage.found == [], "the question was asked before the other was answered"
    checker.numbered(2, 1.5, is_group_wide=True)
    assert stage.found == ["generation"]


def test_a_generation_has_one_leader(stage: Stage, checker: GroupChecker) -> None:
    checker.led(1, "a")
    checker.led(1, "a")
    checker.statics["i"] = None
    checker.led(2, "i-old")
    checker.led(2, "i-new")
    assert stage.found == []
    checker.led(1, "b")
    assert stage.found == ["generation"]


def test_only_silence_makes_a_member_unknown(stage: Stage, checker: GroupChecker) -> None:
    checker.forgot("a", 6.0, 6.0)
    assert stage.found == []
    checker.forgot("a", 5.3, 6.0)
    assert stage.found == ["forgotten"]
