"""Deduplication window: by record timestamps, bounded, equal for every reader."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.state.queues.dedup import ID_BYTES_MAX, SKEW_MS, DedupWindow


def test_an_id_repeats_within_the_window_and_not_after_it() -> None:
    window = DedupWindow(window_ms=100)
    assert not window.is_repeated(b"a", 1_000)
    assert window.is_repeated(b"a", 1_099)
    assert not window.is_repeated(b"b", 1_099)
    assert not window.is_repeated(b"a", 1_100)
    assert window.is_repeated(b"a", 1_150)


def test_a_repeat_does_not_make_the_window_longer() -> None:
    window = DedupWindow(window_ms=100)
    assert not window.is_repeated(b"a", 0)
    assert window.is_repeated(b"a", 90)
    assert not window.is_repeated(b"a", 110)


def test_old_ids_are_forgotten() -> None:
    window = DedupWindow(window_ms=100)
    for number in range(1_000):
        window.is_repeated(b"%d" % number, number * 10)
    assert len(window) <= 22
    assert window.forgotten_early == 0


def test_beyond_its_bound_the_oldest_goes_early_and_is_counted() -> None:
    window = DedupWindow(window_ms=1_000, ids_max=3)
    for name in (b"a", b"b", b"c", b"d"):
        assert not window.is_repeated(name, 0)
    assert len(window) == 3
    assert window.forgotten_early == 1
    assert window.is_repeated(b"d", 1)
    assert not window.is_repeated(b"a", 1)


def test_long_ids_are_told_apart_by_their_first_bytes() -> None:
    window = DedupWindow()
    assert not window.is_repeated(b"x" * ID_BYTES_MAX + b"1", 0)
    assert window.is_repeated(b"x" * ID_BYTES_MAX + b"2", 0)


def test_what_is_sent_after_the_clock_went_back_is_no_repetition() -> None:
    window = DedupWindow(window_ms=300_000)
    assert not window.is_repeated(b"a", 10_000_000)
    assert not window.is_repeated(b"a", 6_400_000)
    assert window.is_repeated(b"a", 6_400_100), "it counts from its new time on"
    assert not window.is_repeated(b"b", 6_400_200)
    assert window.is_repeated(b"b", 6_400_300), "and so do others, while the clock is behind"


def test_clocks_that_differ_a_little_are_one() -> None:
    window = DedupWindow(window_ms=300_000)
    assert not window.is_repeated(b"a", 10_000_000)
    assert window.is_repeated(b"a", 10_000_001 - SKEW_MS)
    assert not window.is_repeated(b"a", 10_000_000 - SKEW_MS)


def test_after_the_clock_went_forward_an_id_may_come_again() -> None:
    window = DedupWindow(window_ms=300_000)
    assert not window.is_repeated(b"a", 10_000_000)
    assert not window.is_repeated(b"a", 13_600_000)
    assert window.is_repeated(b"a", 13_600_001)


def test_who_is_far_behind_is_not_forgotten_for_it() -> None:
    window = DedupWindow(window_ms=100)
    for number in range(100):
        assert not window.is_repeated(b"ahead %d" % number, 1_000_000 + number)
        assert not window.is_repeated(b"behind %d" % number, number)
        assert window.is_repeated(b"behind %d" % number, number + 1)
    for number in range(1_000):
        window.is_repeated(b"%d" % number, 1_001_000 + number * 10)
    assert len(window) <= 22


STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.one_of(st.integers(0, 400), st.sampled_from([-5_000_000, -3_000, -100, 5_000_000])),
    ),
    max_size=60,
)


@given(STEPS, st.sampled_from([0, 50, 500, 5_000]))
def test_whatever_the_clock_does_only_what_was_just_sent_is_dropped(
    steps: list[tuple[int, int]], window_ms: int
) -> None:
    """Of what is dropped, one that was delivered is near by both timestamps; and if the clock
    never goes back, exactly what was sent within the window is dropped."""
    window = DedupWindow(window_ms=window_ms)
    now_ms, went_back = 10_000_000, False
    given_ms: dict[int, int] = {}
    for number, step_ms in steps:
        now_ms += step_ms
        went_back = went_back or step_ms < 0
        last_ms = given_ms.get(number)
        is_near = last_ms is not None and -SKEW_MS < now_ms - last_ms < window_ms
        is_repeated = window.is_repeated(b"%d" % number, now_ms)
        assert is_near or not is_repeated
        assert went_back or is_repeated == is_near
        if not is_repeated:
            given_ms[number] = now_ms
