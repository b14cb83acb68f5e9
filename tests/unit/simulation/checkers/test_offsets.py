"""`OffsetsChecker`: valid and invalid committed offsets."""

import pytest

from simulation.checkers.offsets import OffsetsChecker
from tests.unit.simulation.checkers.fake_context import FakeContext

PARTITION = ("t", 0)


@pytest.fixture
def context() -> FakeContext:
    return FakeContext()


@pytest.fixture
def checker(context: FakeContext) -> OffsetsChecker:
    return OffsetsChecker(context, "g")


def commit(
    context: FakeContext, checker: OffsetsChecker, start: float, end: float, number: int = 1
) -> int:
    context.at(start)
    made = checker.begin_commit(PARTITION, number)
    context.at(end)
    checker.acknowledged(made)
    return made.value


def test_last_and_pending_commits_may_be_read(
    context: FakeContext, checker: OffsetsChecker
) -> None:
    first = commit(context, checker, 1, 2)
    checker.read(PARTITION, first, 3)
    context.at(4)
    unknown = checker.begin_commit(PARTITION, 1)
    checker.read(PARTITION, first, 5)
    checker.read(PARTITION, unknown.value, 6)
    assert context.found == []


def test_lost_acknowledged_commit_is_a_violation(
    context: FakeContext, checker: OffsetsChecker
) -> None:
    first = commit(context, checker, 1, 2)
    commit(context, checker, 3, 4)
    checker.read(PARTITION, first, 5)
    assert context.found == ["lost-commit"]


def test_missing_offset_after_a_commit_is_a_violation(
    context: FakeContext, checker: OffsetsChecker
) -> None:
    commit(context, checker, 1, 2)
    checker.read(PARTITION, -1, 3)
    assert context.found == ["lost-commit"]


def test_read_concurrent_with_a_commit_may_return_either_offset(
    context: FakeContext, checker: OffsetsChecker
) -> None:
    first = commit(context, checker, 1, 2)
    second = commit(context, checker, 3, 6)
    checker.read(PARTITION, first, 4)
    checker.read(PARTITION, second, 4)
    assert context.found == []


def test_applied_refused_commit_is_a_violation(
    context: FakeContext, checker: OffsetsChecker
) -> None:
    made = checker.begin_commit(PARTITION, 1)
    checker.refused(made)
    checker.read(PARTITION, made.value, 1)
    assert context.found == ["fencing"]


def test_commit_of_an_older_generation_over_a_newer_is_a_violation(
    context: FakeContext, checker: OffsetsChecker
) -> None:
    context.at(1)
    zombie = checker.begin_commit(PARTITION, 1)
    commit(context, checker, 2, 3, number=2)
    checker.read(PARTITION, zombie.value, 4)
    assert context.found == ["fencing"]


def test_offset_that_was_never_committed_is_a_violation(
    context: FakeContext, checker: OffsetsChecker
) -> None:
    checker.read(PARTITION, 99, 1)
    assert context.found == ["invented"]
