"""The memory budget of all connections."""

from penstock.server.budget import Budget


def test_taking_stops_at_the_maximum_and_goes_on_after_giving() -> None:
    budget = Budget(100)
    assert budget.take(60)
    assert not budget.take(50)
    budget.give(60)
    assert budget.take(50)
    assert budget.used == 50


def test_one_who_is_alone_may_exceed_it_so_that_nobody_starves() -> None:
    assert Budget(100).take(500)


def test_waiters_are_woken_one_at_a_time_in_order() -> None:
    budget = Budget(100)
    woken: list[str] = []
    assert budget.take(100)
    budget.wait("a", lambda: woken.append("a"))
    budget.wait("b", lambda: woken.append("b"))
    budget.wait("c", lambda: woken.append("c"))
    budget.forget("b")
    budget.give(50)
    assert woken == ["a"]
    budget.give(50)
    assert woken == ["a", "c"]
    assert not budget.is_contended
