"""`penstock.state.transactions.shard`."""

from penstock.state.transactions.shard import Timeouts


def test_due_timeouts_come_earliest_first_until_moved() -> None:
    timeouts = Timeouts()
    for name, at_ms in (("late", 30), ("b", 10), ("a", 10), ("mid", 20)):
        timeouts.set(name, at_ms)
    assert timeouts.floor_ms == 10
    assert timeouts.due(9, 10) == []
    assert timeouts.due(20, 10) == ["a", "b", "mid"]
    assert timeouts.due(20, 2) == ["a", "b"]
    for name in ("a", "b", "mid"):
        timeouts.set(name, None)
    assert timeouts.due(20, 10) == []
    assert timeouts.floor_ms == 30


def test_floor_is_found_again_when_it_was_too_early() -> None:
    timeouts = Timeouts()
    timeouts.set("a", 10)
    timeouts.set("a", 50)
    assert timeouts.floor_ms == 10
    assert timeouts.due(10, 10) == []
    assert timeouts.floor_ms == 50
    timeouts.set("a", None)
    timeouts.set("a", None)
    assert timeouts.due(60, 10) == []
    assert timeouts.floor_ms is None
