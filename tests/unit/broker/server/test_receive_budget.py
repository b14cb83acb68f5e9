"""The memory budget of all connections."""

from penstock.broker.server.receive_budget import UNAUTHENTICATED_BYTES_MAX, ReceiveBudget


def test_hold_stops_at_the_maximum_until_a_release() -> None:
    budget = ReceiveBudget(100)
    assert budget.hold("a", 60)
    assert not budget.hold("b", 50)
    budget.release("a")
    assert budget.hold("b", 50)
    assert budget.used == 50


def test_growth_is_charged_by_the_difference() -> None:
    budget = ReceiveBudget(100)
    assert budget.hold("a", 40)
    assert budget.hold("b", 40)
    assert budget.hold("a", 60)
    assert budget.used == 100
    assert not budget.hold("b", 50)
    assert budget.used == 100


def test_single_holder_may_exceed_the_budget() -> None:
    budget = ReceiveBudget(100)
    assert budget.hold("a", 500)
    assert budget.hold("a", 900)


def test_last_holder_not_waiting_may_exceed_the_budget() -> None:
    budget = ReceiveBudget(100)
    assert budget.hold("a", 50)
    assert budget.hold("b", 50)
    assert not budget.hold("a", 80)
    budget.wait("a", 80, lambda: None)
    assert budget.hold("b", 300)


def test_waiters_are_woken_in_order_when_their_bytes_fit() -> None:
    budget = ReceiveBudget(100)
    woken: list[str] = []
    assert budget.hold("x", 60)
    assert budget.hold("y", 40)
    for who, count in (("a", 30), ("b", 30), ("c", 40)):
        assert not budget.hold(who, count)
        budget.wait(who, count, lambda who=who: woken.append(who))  # type: ignore[misc]
    budget.release("b")
    assert not woken
    budget.release("y")
    assert woken == ["a"]
    budget.release("x")
    assert woken == ["a", "c"]
    assert budget.used == 70
    assert not budget.is_contended


def test_new_holder_does_not_overtake_waiters() -> None:
    budget = ReceiveBudget(100)
    assert budget.hold("x", 90)
    assert budget.hold("y", 5)
    assert not budget.hold("a", 50)
    budget.wait("a", 50, lambda: None)
    assert not budget.hold("late", 1)


def test_first_waiter_continues_when_only_waiters_are_left() -> None:
    budget = ReceiveBudget(100)
    woken: list[str] = []
    assert budget.hold("a", 60)
    assert budget.hold("b", 40)
    assert not budget.hold("a", 120)
    budget.wait("a", 120, lambda: woken.append("a"))
    assert not budget.hold("c", 200)
    budget.wait("c", 200, lambda: woken.append("c"))
    budget.release("b")
    assert woken == ["a"]
    assert budget.used == 120
    budget.release("a")
    assert woken == ["a", "c"]


def test_negative_maximum_means_unlimited() -> None:
    budget = ReceiveBudget(-1)
    assert budget.hold("a", 1 << 40)
    assert budget.hold("b", 1 << 40)


def test_unauthenticated_connections_have_their_own_budget() -> None:
    budget = ReceiveBudget(1 << 30)
    half = UNAUTHENTICATED_BYTES_MAX // 2
    assert budget.hold_unauthenticated("a", half)
    assert budget.hold_unauthenticated("b", half - 1)
    assert not budget.hold_unauthenticated("c", 2)
    assert budget.hold_unauthenticated("a", half + 1), "the difference counts"
    assert (budget.used, budget.unauthenticated_bytes) == (0, UNAUTHENTICATED_BYTES_MAX)
    assert budget.should_release("a")
    assert not budget.should_release("c")
    budget.release("a")
    assert not budget.should_release("a")
    assert budget.hold_unauthenticated("c", 2)
