"""Number of members that a group needs, from two measurements."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.admin.scaling import (
    GroupProgress,
    PartitionLag,
    ScalingTarget,
    group_progress,
    rates,
    scale,
)


def at(at_s: float, done: int, end: int, partitions: int = 10) -> GroupProgress:
    return GroupProgress(at_s, partitions, done, end, end - done, end - done)


def test_group_progress_sums_partitions() -> None:
    found = group_progress(5.0, {("t", 0): PartitionLag(3, 10), ("t", 1): PartitionLag(9, 8)})
    assert found == GroupProgress(5.0, 2, 12, 18, 7, 7)


def test_desired_members_cover_arrivals_and_backlog() -> None:
    # Two members read 100/s each; 300/s come in, and 6,000 are to be read within a minute.
    found = scale(at(0, 0, 5_000), at(10, 2_000, 8_000), 2, ScalingTarget(target_s=60))
    assert (found.read_per_s, found.written_per_s, found.member_per_s) == (200, 300, 100)
    assert found.desired == 4
    assert scale(at(0, 0, 5_000), at(10, 2_000, 8_000), 2, ScalingTarget(target_s=6)).desired == 10


def test_members_are_limited_by_partitions_except_in_a_queue() -> None:
    before, now = at(0, 0, 90_000, 3), at(10, 1_000, 90_000, 3)
    found = scale(before, now, 1, ScalingTarget(target_s=1))
    assert found.desired == 3
    assert "3 partitions" in found.reason
    assert scale(before, now, 1, ScalingTarget(target_s=1, high=50), is_queue=True).desired == 50


def test_idle_group_needs_no_members_beyond_its_minimum() -> None:
    before, now = at(0, 10, 10), at(10, 10, 10)
    assert scale(before, now, 3, ScalingTarget()).desired == 0
    assert scale(before, now, 3, ScalingTarget(low=2)).desired == 2


def test_group_that_reads_nothing_is_not_scaled_up() -> None:
    found = scale(at(0, 5, 100), at(10, 5, 400), 4, ScalingTarget(target_s=1))
    assert found.desired == 4
    assert "read nothing" in found.reason


def test_first_measurement_keeps_the_current_members() -> None:
    assert scale(None, at(0, 0, 100), 4, ScalingTarget()).desired == 4
    assert scale(None, at(0, 0, 100), 0, ScalingTarget()).desired == 1
    assert scale(None, at(0, 100, 100), 0, ScalingTarget()).desired == 0
    assert scale(None, at(0, 0, 600), 1, ScalingTarget(target_s=60, rate=2)).desired == 5


def test_known_rate_scales_a_group_up_from_zero() -> None:
    found = scale(at(0, 0, 0), at(10, 0, 1_000), 0, ScalingTarget(target_s=60), known_rate=50)
    assert found.desired == 3


def test_idle_period_does_not_lower_the_member_rate() -> None:
    found = scale(at(0, 0, 0), at(10, 10, 10), 2, ScalingTarget(), known_rate=100)
    assert found.member_per_s == 100
    assert found.desired == 1


def test_offsets_moved_back_give_no_rates() -> None:
    assert rates(at(0, 50, 100), at(10, 20, 100)) is None
    assert rates(at(0, 50, 100, 3), at(10, 60, 100, 4)) is None
    assert rates(at(0, 50, 100), at(0.1, 60, 100)) is None
    assert rates(None, at(0, 1, 1)) is None


@given(
    done=st.integers(0, 10_000),
    read=st.integers(0, 10_000),
    lag=st.integers(0, 10_000),
    written=st.integers(0, 10_000),
    members=st.integers(0, 20),
    low=st.integers(0, 5),
    high=st.integers(1, 30),
)
def test_desired_members_stay_within_the_limits(
    done: int, read: int, lag: int, written: int, members: int, low: int, high: int
) -> None:
    before = at(0, done, done + lag + read)
    now = at(10, done + read, done + lag + read + written)
    found = scale(before, now, members, ScalingTarget(low=low, high=high))
    assert low <= found.desired <= max(low, min(high, 10))
