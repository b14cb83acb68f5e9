"""Append times: bounds are at most one step early, never late, and bounded in number."""

from penstock.base.append_times import ENTRIES_MAX, STEP_MS, AppendTimes


def test_bound_is_at_most_one_step_early() -> None:
    times = AppendTimes()
    for offset in range(200):
        times.note(offset, offset * 100)
        since = times.since(offset)
        assert since is not None
        assert offset * 100 - STEP_MS < since <= offset * 100
    assert times.since(-1) is None


def test_bounds_never_get_later_when_entries_are_dropped() -> None:
    times = AppendTimes()
    for offset in range(1_000):
        times.note(offset, offset * STEP_MS)
        assert len(times.entries()) <= ENTRIES_MAX
    assert times.entries()[0] == (0, 0)
    for offset in range(1_000):
        since = times.since(offset)
        assert since is not None
        assert since <= offset * STEP_MS
    assert times.since(999) == 999 * STEP_MS


def test_upper_bounds_come_from_the_next_entry_and_end_with_a_truncation() -> None:
    times = AppendTimes([(1, 1_000), (5, 5_000), (9, 9_000)])
    assert [times.until(offset) for offset in (0, 1, 4, 5, 8, 9)] == [
        1_000, 5_000, 5_000, 9_000, 9_000, None,
    ]  # fmt: skip
    times.forget_from(5)
    assert times.entries() == ((1, 1_000),)
    times.note(3, 20_000)
    assert (times.until(2), times.until(3)) == (20_000, None)


def test_clock_that_went_back_is_news() -> None:
    times = AppendTimes([(5, 10_000)])
    times.note(5, 99_000)
    times.note(6, 10_500)
    assert times.entries() == ((5, 10_000),)
    times.note(7, 3_000)
    assert (times.since(6), times.since(7)) == (10_000, 3_000)


def test_entries_below_the_start_are_forgotten_except_the_last() -> None:
    times = AppendTimes([(1, 1_000), (5, 5_000), (9, 9_000)])
    times.forget_below(6)
    assert times.entries() == ((5, 5_000), (9, 9_000))
    times.forget_below(99)
    assert times.since(99) == 9_000
    times.clear()
    assert times.since(99) is None
