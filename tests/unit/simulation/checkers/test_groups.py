"""`GroupChecker`: ownership, generations and sessions, from the replies to members."""

import pytest

from simulation.checkers.groups import GroupChecker
from tests.unit.simulation.checkers.fake_context import FakeContext

PARTITION = ("t", 0)


@pytest.fixture
def context() -> FakeContext:
    return FakeContext()


@pytest.fixture
def checker(context: FakeContext) -> GroupChecker:
    return GroupChecker(context, "g")


def test_two_concurrent_confirmed_owners_are_a_violation(
    context: FakeContext, checker: GroupChecker
) -> None:
    context.at(1)
    checker.granted("a", set(), {PARTITION})
    context.at(5)
    checker.granted("b", set(), {PARTITION})
    checker.confirmed("b", {PARTITION}, 6)
    assert context.found == []
    checker.confirmed("a", {PARTITION}, 7)
    assert context.found == ["owners"]


def test_unconfirmed_zombie_is_not_an_owner(context: FakeContext, checker: GroupChecker) -> None:
    context.at(1)
    checker.granted("a", set(), {PARTITION})
    checker.confirmed("a", {PARTITION}, 2)
    context.at(5)
    checker.granted("b", set(), {PARTITION})
    checker.confirmed("b", {PARTITION}, 6)
    assert context.found == []


def test_decreasing_generation_is_a_violation(context: FakeContext, checker: GroupChecker) -> None:
    context.at(1)
    checker.numbered(3, 0, is_group_wide=True)
    checker.numbered(2, 0.5, is_group_wide=True)
    assert context.found == [], "the request was sent before the other reply"
    checker.numbered(2, 1.5, is_group_wide=True)
    assert context.found == ["generation"]


def test_second_leader_of_a_generation_is_a_violation(
    context: FakeContext, checker: GroupChecker
) -> None:
    checker.led(1, "a")
    checker.led(1, "a")
    checker.statics["i"] = None
    checker.led(2, "i-old")
    checker.led(2, "i-new")
    assert context.found == []
    checker.led(1, "b")
    assert context.found == ["generation"]


def test_early_member_expiry_is_a_violation(context: FakeContext, checker: GroupChecker) -> None:
    checker.forgot("a", 6.0, 6.0)
    assert context.found == []
    checker.forgot("a", 5.3, 6.0)
    assert context.found == ["forgotten"]
