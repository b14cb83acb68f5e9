"""Samples kept for scaling: number, spacing, age."""

from penstock.client.admin.scaling import GroupProgress
from penstock.gateway.core.groups import SAMPLE_AGE_MAX_S, SAMPLE_INTERVAL_S, SAMPLES_MAX, _History


def at(at_s: float, partitions: int = 1) -> GroupProgress:
    return GroupProgress(at_s, partitions, 0, 0, 0, 0)


def test_samples_are_spaced_and_limited() -> None:
    history = _History()
    for step in range(100):
        history.add(at(step * SAMPLE_INTERVAL_S / 2))
    assert len(history.samples) == SAMPLES_MAX
    spaces = [b.at_s - a.at_s for a, b in zip(history.samples, history.samples[1:], strict=False)]
    assert spaces == [SAMPLE_INTERVAL_S] * (SAMPLES_MAX - 1)


def test_old_samples_are_dropped() -> None:
    history = _History()
    history.add(at(0))
    assert history.before(SAMPLE_AGE_MAX_S) == at(0)
    assert history.before(SAMPLE_AGE_MAX_S + 1) is None


def test_changed_partitions_reset_the_samples() -> None:
    history = _History()
    history.add(at(0))
    history.add(at(20, partitions=2))
    assert history.samples == [at(20, partitions=2)]
