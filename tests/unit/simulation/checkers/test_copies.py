"""`CopyChecker`: atomic visibility of transactions, each input record copied once."""

import pytest

from simulation.checkers.copies import Copy, CopyChecker, Txn
from tests.unit.simulation.checkers.fake_context import FakeContext

OUT, OTHER = ("out", 0), ("out", 1)


@pytest.fixture
def context() -> FakeContext:
    return FakeContext()


@pytest.fixture
def checker(context: FakeContext) -> CopyChecker:
    return CopyChecker(context)


def made(checker: CopyChecker, name: str, *places: tuple[tuple[str, int], int]) -> Txn:
    """Transaction with copies of these input offsets, whose commit was requested."""
    txn = checker.began(name)
    for place, offset in places:
        txn.copies[place, Copy(name, "in", 0, offset)] = None
    txn.is_commit_asked = True
    return txn


def value(name: str, offset: int) -> bytes:
    return Copy(name, "in", 0, offset).encode()


def test_complete_committed_transaction_is_accepted(
    context: FakeContext, checker: CopyChecker
) -> None:
    txn = made(checker, "x", (OUT, 0), (OTHER, 1))
    checker.note_read(OUT, 5, value("x", 0))
    checker.committed(txn)
    final = {OUT: [(5, value("x", 0))], OTHER: [(3, value("x", 1))]}
    checker.check(final, {("in", 0): 2})
    assert context.found == []


def test_partly_visible_transaction_is_torn(context: FakeContext, checker: CopyChecker) -> None:
    made(checker, "x", (OUT, 0), (OTHER, 1))
    checker.check({OUT: [(5, value("x", 0))], OTHER: []}, {})
    assert context.found == ["torn"]


def test_only_a_transaction_of_unknown_outcome_may_be_invisible(
    context: FakeContext, checker: CopyChecker
) -> None:
    made(checker, "x", (OUT, 0))
    checker.check({OUT: []}, {})
    assert context.found == []
    checker.committed(made(checker, "y", (OUT, 1)))
    checker.check({OUT: []}, {})
    assert context.found == ["torn"]


def test_read_of_an_aborted_record_is_a_violation(
    context: FakeContext, checker: CopyChecker
) -> None:
    early = made(checker, "x", (OUT, 0))
    checker.note_read(OUT, 0, value("x", 0))
    checker.aborted(early)
    late = made(checker, "y", (OUT, 1))
    checker.aborted(late)
    checker.note_read(OUT, 1, value("y", 1))
    assert context.found == ["aborted-read", "aborted-read"]


def test_read_before_the_commit_request_is_a_violation(
    context: FakeContext, checker: CopyChecker
) -> None:
    made(checker, "x", (OUT, 0)).is_commit_asked = False
    checker.note_read(OUT, 0, value("x", 0))
    assert context.found == ["precommitted-read"]


def test_duplicate_and_missing_copies_are_violations(
    context: FakeContext, checker: CopyChecker
) -> None:
    made(checker, "x", (OUT, 0))
    made(checker, "y", (OUT, 0))
    checker.note_read(OUT, 0, value("x", 0))
    checker.note_read(OUT, 1, value("y", 0))
    assert context.found == ["duplicate"]
    checker.check({OUT: [(0, value("x", 0))]}, {("in", 0): 2})
    assert "lost-write" in context.found


def test_reordered_copies_are_a_violation(context: FakeContext, checker: CopyChecker) -> None:
    made(checker, "x", (OUT, 0), (OUT, 1))
    checker.check({OUT: [(0, value("x", 1)), (1, value("x", 0))]}, {("in", 0): 2})
    assert context.found == ["disorder"]


def test_two_records_at_one_offset_are_a_violation(
    context: FakeContext, checker: CopyChecker
) -> None:
    made(checker, "x", (OUT, 0), (OUT, 1))
    checker.note_read(OUT, 0, value("x", 0))
    checker.note_read(OUT, 0, value("x", 1))
    assert context.found[0] == "inconsistent-offsets"
