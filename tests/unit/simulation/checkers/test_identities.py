"""`IdentityChecker`: who was given what, and who may no longer write."""

from simulation.checkers.identities import IdentityChecker
from tests.unit.simulation.checkers.stage import Stage


def test_an_identity_is_given_once_and_epochs_grow() -> None:
    stage = Stage()
    checker = IdentityChecker(stage)
    checker.initialised("t", 1, 7, 0, 0.0, is_new=True)
    stage.at(1)
    checker.initialised("t", 2, 7, 1, 0.5, is_new=True)
    assert stage.found == []
    checker.initialised("u", 1, 7, 1, 0.5, is_new=True)
    assert stage.found == ["identity"]
    stage.at(3)
    checker.initialised("t", 3, 7, 0, 2.0, is_new=False)
    assert stage.found == ["identity", "identity"]


def test_of_two_who_ask_at_once_either_may_hear_first() -> None:
    stage = Stage()
    checker = IdentityChecker(stage)
    stage.at(2)
    checker.initialised("t", 2, 7, 1, 1.0, is_new=True)
    stage.at(3)
    checker.initialised("t", 1, 7, 0, 1.5, is_new=True)
    assert stage.found == []


def test_the_older_instance_must_fail_once_the_later_one_knows() -> None:
    stage = Stage()
    checker = IdentityChecker(stage)
    checker.initialised("t", 1, 7, 0, 0.0, is_new=True)
    stage.at(2)
    checker.initialised("t", 2, 7, 1, 1.0, is_new=True)
    checker.succeeded("t", 1, 7, 0, 1.0, "Produce")
    checker.succeeded("t", 2, 7, 1, 3.0, "Produce")
    assert stage.found == []
    checker.succeeded("t", 1, 7, 0, 3.0, "Produce")
    assert stage.found == ["fencing"]
