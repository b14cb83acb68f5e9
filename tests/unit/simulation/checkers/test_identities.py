"""`IdentityChecker`: unique identities, and fencing of older ones."""

from simulation.checkers.identities import IdentityChecker
from tests.unit.simulation.checkers.fake_context import FakeContext


def test_reused_identity_and_decreasing_epoch_are_violations() -> None:
    context = FakeContext()
    checker = IdentityChecker(context)
    checker.initialised("t", 1, 7, 0, 0.0, is_new=True)
    context.at(1)
    checker.initialised("t", 2, 7, 1, 0.5, is_new=True)
    assert context.found == []
    checker.initialised("u", 1, 7, 1, 0.5, is_new=True)
    assert context.found == ["identity"]
    context.at(3)
    checker.initialised("t", 3, 7, 0, 2.0, is_new=False)
    assert context.found == ["identity", "identity"]


def test_concurrent_init_producer_id_replies_may_have_any_order() -> None:
    context = FakeContext()
    checker = IdentityChecker(context)
    context.at(2)
    checker.initialised("t", 2, 7, 1, 1.0, is_new=True)
    context.at(3)
    checker.initialised("t", 1, 7, 0, 1.5, is_new=True)
    assert context.found == []


def test_success_of_a_fenced_instance_is_a_violation() -> None:
    context = FakeContext()
    checker = IdentityChecker(context)
    checker.initialised("t", 1, 7, 0, 0.0, is_new=True)
    context.at(2)
    checker.initialised("t", 2, 7, 1, 1.0, is_new=True)
    checker.succeeded("t", 1, 7, 0, 1.0, "Produce")
    checker.succeeded("t", 2, 7, 1, 3.0, "Produce")
    assert context.found == []
    checker.succeeded("t", 1, 7, 0, 3.0, "Produce")
    assert context.found == ["fencing"]
