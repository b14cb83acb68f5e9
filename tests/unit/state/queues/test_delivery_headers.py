"""Delivery headers: their effect, and invalid values."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.queues.backlog import Arrival
from penstock.state.queues.deduplication import ID_BYTES_MAX, SKEW_MS, DedupWindow
from penstock.state.queues.delivery_headers import DUE_MS_MAX, Intake, key_hash
from penstock.state.queues.policy import Order
from penstock.wire.columns import Columns, Record
from penstock.wire.records import decode, encode

Headers = tuple[tuple[str, bytes | None], ...]


def columns(*headers: Headers, keys: Sequence[bytes | None] = (), base_offset: int = 10) -> Columns:
    """One record for each row of headers, sent at 1000, 1001, ..."""
    records = [
        Record(0, 1_000 + at, keys[at] if keys else None, b"v", row)
        for at, row in enumerate(headers)
    ]
    return decode(memoryview(encode(records, base_offset=base_offset)))


def arrival(*header: tuple[str, bytes | None]) -> Arrival:
    (found,) = Intake(Order.NONE).arrivals(columns(header))
    assert isinstance(found, Arrival)
    return found


def test_batch_without_headers_is_one_run() -> None:
    batch = columns((), (), ())
    assert Intake(Order.NONE).is_plain(batch)
    assert not Intake(Order.KEY).is_plain(batch)
    assert not Intake(Order.NONE).is_plain(columns((("penstock-priority", b"1"),), ()))


@pytest.mark.parametrize(
    ("header", "value", "wanted"),
    [
        ("penstock-priority", b"9", Arrival(10, priority=9)),
        ("penstock-delay-ms", b"500", Arrival(10, due_ms=1_500)),
        ("penstock-deliver-at", b"77", Arrival(10, due_ms=77)),
        ("penstock-expires-at", b"88", Arrival(10, expires_ms=88)),
        ("penstock-ttl-ms", b"500", Arrival(10, expires_ms=1_500)),
        ("penstock-other", b"1", Arrival(10)),
        ("something", b"1", Arrival(10)),
    ],
)
def test_delivery_headers_set_due_time_and_priority(
    header: str, value: bytes, wanted: Arrival
) -> None:
    assert arrival((header, value)) == wanted


def test_later_of_two_delays_and_the_earlier_of_two_ends_count() -> None:
    found = arrival(
        ("penstock-delay-ms", b"10"),
        ("penstock-deliver-at", b"5000"),
        ("penstock-ttl-ms", b"9000"),
        ("penstock-expires-at", b"6000"),
    )
    assert (found.due_ms, found.expires_ms) == (5_000, 6_000)


@pytest.mark.parametrize("value", [None, b"", b"-1", b"1.5", b"ten", b" 1", b"9" * 17])
def test_value_that_is_none_is_ignored_and_counted(value: bytes | None) -> None:
    intake = Intake(Order.NONE)
    (found,) = intake.arrivals(columns((("penstock-delay-ms", value),)))
    assert found == Arrival(10)
    assert intake.ignored == 1


def test_priority_above_nine_is_ignored() -> None:
    intake = Intake(Order.NONE)
    (found,) = intake.arrivals(columns((("penstock-priority", b"10"),)))
    assert found == Arrival(10)
    assert intake.ignored == 1


def test_repeated_id_is_skipped() -> None:
    intake = Intake(Order.NONE, DedupWindow())
    same: Headers = (("penstock-dedup-id", b"a"),)
    assert list(intake.arrivals(columns(same, same, ()))) == [Arrival(10), 11, Arrival(12)]
    assert intake.has_ids


def test_id_scope_may_be_the_key() -> None:
    intake = Intake(Order.NONE, DedupWindow(), dedups_by_key=True)
    same: Headers = (("penstock-dedup-id", b"a"),)
    batch = columns(*[same] * 7, keys=[b"x", b"y", b"x", None, None, b"", b"y"])
    repeated = [at for at in intake.arrivals(batch) if isinstance(at, int)]
    assert repeated == [12, 14, 16]
    intake.remember(columns(same, keys=[b"z"], base_offset=20))
    assert list(intake.arrivals(columns(same, keys=[b"z"], base_offset=21))) == [21]


def test_ids_of_records_before_the_start_are_remembered() -> None:
    intake = Intake(Order.NONE, DedupWindow())
    same: Headers = (("penstock-dedup-id", b"a"),)
    intake.remember(columns(same, ()))
    assert list(intake.arrivals(columns(same, base_offset=20))) == [20]


def test_ids_are_ignored_without_a_window() -> None:
    intake = Intake(Order.NONE)
    same: Headers = (("penstock-dedup-id", b"a"),)
    assert list(intake.arrivals(columns(same, same))) == [Arrival(10), Arrival(11)]
    assert not intake.has_ids


def test_dead_letters_with_one_deduplication_id_are_all_delivered() -> None:
    headers = (("penstock-dedup-id", b"one"), ("penstock-dlq-topic", b"jobs"))
    intake = Intake(Order.NONE, DedupWindow())
    assert list(intake.arrivals(columns(headers, headers))) == [Arrival(10), Arrival(11)]
    assert not intake.has_ids


def test_dead_letters_are_not_delayed_again() -> None:
    found = arrival(("penstock-ttl-ms", b"1"), ("penstock-dlq-topic", b"t"))
    assert found == Arrival(10)


def test_same_key_is_the_same_line_and_no_key_is_a_line_of_its_own() -> None:
    batch = columns((), (), (), (), keys=[b"a", b"a", None, None])
    found = [one for one in Intake(Order.KEY).arrivals(batch) if isinstance(one, Arrival)]
    assert found[0].key == found[1].key == key_hash(b"a", 0)
    assert len({one.key for one in found}) == 3


AT, AFTER = "penstock-deliver-at", "penstock-delay-ms"


@pytest.mark.parametrize(
    "rows",
    [
        (((AT, b"77"),), ((AT, b"0"),), ()),
        (((AFTER, b"500"),), ((AT, b"9000"), (AFTER, b"1")), ((AFTER, b"0"), ("mine", None))),
        (((AFTER, b"5"), (AT, b"6")), ((AFTER, b"6"), (AT, b"1001"))),
    ],
)
def test_due_times_form_a_column_without_other_headers(rows: tuple[Headers, ...]) -> None:
    batch = columns(*rows)
    times = Intake(Order.NONE).due_times(batch)
    assert times is not None
    assert [
        Arrival(offset, due_ms=max(due_ms, 0)) for offset, due_ms in enumerate(times, 10)
    ] == list(Intake(Order.NONE).arrivals(batch))


@pytest.mark.parametrize(
    "header",
    [
        ("penstock-priority", b"1"),
        ("penstock-dedup-id", b"1"),
        ("penstock-dlq-topic", b"1"),
        ("penstock-ttl-ms", b"1"),
        (AT, b"soon"),
        (AT, None),
        (AFTER, b"9" * 16),
    ],
)
def test_other_headers_need_record_by_record_reading(header: tuple[str, bytes | None]) -> None:
    assert Intake(Order.NONE).due_times(columns(((AT, b"5"),), (header,))) is None


def test_ordered_queues_need_record_by_record_reading() -> None:
    assert Intake(Order.KEY).due_times(columns(((AT, b"5"),))) is None


def test_batch_with_gaps_is_looked_at_record_by_record() -> None:
    records = [Record(offset, 1, None, b"v", ((AT, b"5"),)) for offset in (3, 5)]
    batch = decode(memoryview(encode(records, base_offset=3, keep_offsets=True)))
    assert Intake(Order.NONE).due_times(batch) is None


@pytest.mark.parametrize("name", [AFTER, "penstock-ttl-ms"])
def test_record_from_the_end_of_time_waits_until_then(name: str) -> None:
    sent = Record(0, DUE_MS_MAX - 1, None, b"v", ((name, b"500"),))
    batch = decode(memoryview(encode([sent])))
    (found,) = Intake(Order.NONE).arrivals(batch)
    assert isinstance(found, Arrival)
    assert DUE_MS_MAX in (found.due_ms, found.expires_ms)
    times = Intake(Order.NONE).due_times(batch)
    assert times is None or list(times) == [DUE_MS_MAX]


def test_id_repeats_within_the_window_and_not_after_it() -> None:
    window = DedupWindow(window_ms=100)
    assert not window.is_repeated(b"a", 1_000)
    assert window.is_repeated(b"a", 1_099)
    assert not window.is_repeated(b"b", 1_099)
    assert not window.is_repeated(b"a", 1_100)
    assert window.is_repeated(b"a", 1_150)


def test_repeat_does_not_make_the_window_longer() -> None:
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


def test_oldest_id_is_forgotten_early_beyond_the_limit() -> None:
    window = DedupWindow(window_ms=1_000, ids_max=3)
    for name in (b"a", b"b", b"c", b"d"):
        assert not window.is_repeated(name, 0)
    assert len(window) == 3
    assert window.forgotten_early == 1
    assert window.is_repeated(b"d", 1)
    assert not window.is_repeated(b"a", 1)


def test_long_ids_are_compared_by_their_first_bytes() -> None:
    window = DedupWindow()
    assert not window.is_repeated(b"x" * ID_BYTES_MAX + b"1", 0)
    assert window.is_repeated(b"x" * ID_BYTES_MAX + b"2", 0)


def test_message_after_a_backward_clock_jump_is_not_a_duplicate() -> None:
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


def test_id_may_repeat_after_a_forward_clock_jump() -> None:
    window = DedupWindow(window_ms=300_000)
    assert not window.is_repeated(b"a", 10_000_000)
    assert not window.is_repeated(b"a", 13_600_000)
    assert window.is_repeated(b"a", 13_600_001)


def test_id_of_a_publisher_far_behind_is_kept_for_its_window() -> None:
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
def test_only_recent_messages_are_dropped_whatever_the_clock(
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
