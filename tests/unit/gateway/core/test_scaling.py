"""What is remembered of groups between questions is bounded, and forgets what is old."""

from penstock.client.admin.scaling import GroupStanding
from penstock.gateway.core.scaling import KEPT_MAX, OLD_SECONDS, SPACING_SECONDS, _History


def at(at_s: float, partitions: int = 1) -> GroupStanding:
    return GroupStanding(at_s, partitions, 0, 0, 0, 0)


def test_moments_are_spaced_and_few() -> None:
    history = _History()
    for step in range(100):
        history.add(at(step * SPACING_SECONDS / 2))
    assert len(history.moments) == KEPT_MAX
    spaces = [b.at_s - a.at_s for a, b in zip(history.moments, history.moments[1:], strict=False)]
    assert spaces == [SPACING_SECONDS] * (KEPT_MAX - 1)


def test_old_moments_tell_nothing() -> None:
    history = _History()
    history.add(at(0))
    assert history.before(OLD_SECONDS) == at(0)
    assert history.before(OLD_SECONDS + 1) is None


def test_another_set_of_partitions_begins_anew() -> None:
    history = _History()
    history.add(at(0))
    history.add(at(20, partitions=2))
    assert history.moments == [at(20, partitions=2)]
