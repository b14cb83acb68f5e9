"""Guards: broken by a marker to their place, and by nothing else."""

from penstock.coordinator.txn_verification import Guards


def test_marker_breaks_every_guard_of_its_partition_and_producer() -> None:
    guards = Guards()
    first, second = guards.set(("t", 0, 7)), guards.set(("t", 0, 7))
    intact = [guards.set(place) for place in (("t", 1, 7), ("t", 0, 8), ("u", 0, 7))]
    guards.marked(("t", 0, 7), 0)
    assert first.is_broken
    assert second.is_broken
    assert not any(guard.is_broken for guard in intact)


def test_only_a_newer_marker_breaks_a_guard_with_an_epoch() -> None:
    guards = Guards()
    guard = guards.set(("t", 0, 7), 5)
    for epoch, is_broken in ((4, False), (5, False), (6, True)):
        guards.marked(("t", 0, 7), epoch)
        assert guard.is_broken is is_broken, epoch


def test_guard_set_after_the_marker_is_intact() -> None:
    guards = Guards()
    guards.marked(("t", 0, 7), 0)
    assert not guards.set(("t", 0, 7)).is_broken


def test_lifted_guards_leave_nothing_behind() -> None:
    guards = Guards()
    first, second = guards.set(("t", 0, 7)), guards.set(("t", 0, 7))
    guards.lift(first)
    guards.marked(("t", 0, 7), 0)
    assert (first.is_broken, second.is_broken) == (False, True)
    guards.lift(second)
    guards.lift(second)
    assert len(guards) == 0
