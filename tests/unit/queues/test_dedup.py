"""The window of ids: by the records' own time, bounded, and the same for everyone who reads."""

from penstock.queues.dedup import ID_BYTES_MAX, DedupWindow


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
