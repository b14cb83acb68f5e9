"""`CopyChecker`: all of a transaction or nothing of it, each input record once."""

import pytest

from simulation.checkers.copies import Copy, CopyChecker, Txn
from tests.unit.simulation.checkers.stage import Stage

OUT, OTHER = ("out", 0), ("out", 1)


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def checker(stage: Stage) -> CopyChecker:
    return CopyChecker(stage)


def made(checker: CopyChecker, name: str, *places: tuple[tuple[str, int], int]) -> Txn:
    """A transaction with copies of these input offsets, about to be committed."""
    txn = checker.began(name)
    for place, offset in places:
        txn.copies[place, Copy(name, "in", 0, offset)] = None
    txn.is_commit_asked = True
    return txn


def value(name: str, offset: int) -> bytes:
    return Copy(name, "in", 0, offset).encode()


def test_a_committed_transaction_seen_whole_is_well(stage: Stage, checker: CopyChecker) -> None:
    txn = made(checker, "x", (OUT, 0), (OTHER, 1))
    checker.saw(OUT, 5, value("x", 0))
    checker.committed(txn)
    final = {OUT: [(5, value("x", 0))], OTHER: [(3, value("x", 1))]}
    checker.check(final, {("in", 0): 2})
    assert stage.found == []


def test_half_a_transaction_is_torn(stage: Stage, checker: CopyChecker) -> None:
    made(checker, "x", (OUT, 0), (OTHER, 1))
    checker.check({OUT: [(5, value("x", 0))], OTHER: []}, {})
    assert stage.found == ["torn"]


def test_an_unknown_outcome_may_be_nothing_and_a_committed_one_may_not(
    stage: Stage, checker: CopyChecker
) -> None:
    made(checker, "x", (OUT, 0))
    checker.check({OUT: []}, {})
    assert stage.found == []
    checker.committed(made(checker, "y", (OUT, 1)))
    checker.check({OUT: []}, {})
    assert stage.found == ["torn"]


def test_what_was_aborted_must_not_be_seen_before_or_after(
    stage: Stage, checker: CopyChecker
) -> None:
    early = made(checker, "x", (OUT, 0))
    checker.saw(OUT, 0, value("x", 0))
    checker.aborted(early)
    late = made(checker, "y", (OUT, 1))
    checker.aborted(late)
    checker.saw(OUT, 1, value("y", 1))
    assert stage.found == ["aborted-read", "aborted-read"]


def test_nothing_is_seen_before_somebody_asked_to_commit_it(
    stage: Stage, checker: CopyChecker
) -> None:
    made(checker, "x", (OUT, 0)).is_commit_asked = False
    checker.saw(OUT, 0, value("x", 0))
    assert stage.found == ["precommitted-read"]


def test_a_second_copy_is_a_duplicate_and_a_missing_one_is_lost(
    stage: Stage, checker: CopyChecker
) -> None:
    made(checker, "x", (OUT, 0))
    made(checker, "y", (OUT, 0))
    checker.saw(OUT, 0, value("x", 0))
    checker.saw(OUT, 1, value("y", 0))
    assert stage.found == ["duplicate"]
    checker.check({OUT: [(0, value("x", 0))]}, {("in", 0): 2})
    assert "lost-write" in stage.found


def test_copies_keep_the_order_of_their_source(stage: Stage, checker: CopyChecker) -> None:
    made(checker, "x", (OUT, 0), (OUT, 1))
    checker.check({OUT: [(0, value("x", 1)), (1, value("x", 0))]}, {("in", 0): 2})
    assert stage.found == ["disorder"]


def test_a_place_holds_one_record_for_ever(stage: Stage, checker: CopyChecker) -> None:
    made(checker, "x", (OUT, 0), (OUT, 1))
    checker.saw(OUT, 0, value("x", 0))
    checker.saw(OUT, 0, value("x", 1))
    assert stage.found[0] == "inconsistent-offsets"
