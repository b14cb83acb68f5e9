"""Named deadlines: due once, in order, never early."""

from penstock.state.groups.timers import Timers


def test_due_timers_are_taken_once_earliest_first() -> None:
    timers: Timers[str] = Timers()
    timers.set("b", 20)
    timers.set("a", 10)
    timers.set("c", 30)
    assert timers.floor == 10
    assert timers.take_due(20) == ["a", "b"]
    assert timers.take_due(20) == []
    assert timers.floor == 30


def test_deadline_that_moved_later_does_not_fire_early() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    timers.set("a", 50)
    assert timers.floor == 10
    assert timers.take_due(10) == []
    assert timers.floor == 50
    timers.set_once("a", 5)
    assert timers.take_due(49) == []


def test_nothing_is_due_when_all_timers_are_cancelled() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    timers.cancel("a")
    timers.cancel("a")
    assert timers.floor is None
    assert timers.take_due(100) == []
    timers.set("b", 10)
    timers.clear()
    assert timers.take_due(100) == []
