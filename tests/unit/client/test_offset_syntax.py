"""The offset grammar: what each form means, and that nonsense is refused with examples."""

import pytest

from penstock.base.ids import Millis
from penstock.client.offset_syntax import (
    END,
    START,
    Anchor,
    OffsetPosition,
    OffsetRange,
    OffsetSyntaxError,
    duration_ms,
    parse_offsets,
    parse_position,
)

NOW = Millis(1_800_000_000_000)
HOUR = 3_600_000


def exact(value: int) -> OffsetPosition:
    return OffsetPosition(Anchor.EXACT, value)


def time(value: int) -> OffsetPosition:
    return OffsetPosition(Anchor.TIME, value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start", OffsetRange(START)),
        ("end", OffsetRange(END)),
        (":end", OffsetRange(START, END)),
        ("5", OffsetRange(exact(5))),
        ("5:", OffsetRange(exact(5))),
        (" 5:9 ", OffsetRange(exact(5), exact(9))),
        (":9", OffsetRange(START, exact(9))),
        ("+10", OffsetRange(OffsetPosition(Anchor.START, 10))),
        ("-10", OffsetRange(OffsetPosition(Anchor.END, 10))),
        ("-10:end", OffsetRange(OffsetPosition(Anchor.END, 10), END)),
        ("-10:-5", OffsetRange(OffsetPosition(Anchor.END, 10), OffsetPosition(Anchor.END, 5))),
        ("start:+5", OffsetRange(START, OffsetPosition(Anchor.START, 5))),
        ("@-1h", OffsetRange(time(NOW - HOUR))),
        ("@-1h:", OffsetRange(time(NOW - HOUR))),
        ("@-1h30m:end", OffsetRange(time(NOW - HOUR - HOUR // 2), END)),
        ("@-2h:-1h", OffsetRange(time(NOW - 2 * HOUR), time(NOW - HOUR))),
        ("@-2h:@-1h", OffsetRange(time(NOW - 2 * HOUR), time(NOW - HOUR))),
        ("@:-1h", OffsetRange(START, time(NOW - HOUR))),
        ("@1700000000", OffsetRange(time(1_700_000_000_000))),
        ("@1700000000123", OffsetRange(time(1_700_000_000_123))),
        ("@1700000000:30m", OffsetRange(time(1_700_000_000_000), time(1_700_001_800_000))),
        ("@2026-11-01:end", OffsetRange(time(1_793_491_200_000), END)),
        ("@2026-11-01:2026-11-02", OffsetRange(time(1_793_491_200_000), time(1_793_577_600_000))),
        ("@2026-11-01T10:30:00Z", OffsetRange(time(1_793_529_000_000))),
        ("@2026-11-01T10:30:00.250+02:00", OffsetRange(time(1_793_521_800_250))),
        ("@2026-11-01T10:30:1d", OffsetRange(time(1_793_529_000_000), time(1_793_615_400_000))),
    ],
)
def test_each_offset_form_is_parsed(text: str, expected: OffsetRange) -> None:
    assert parse_offsets(text, NOW) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "foo",
        "5:foo",
        "1.5",
        "--5",
        "5:9:12",
        "@",
        "@:",
        "@yesterday",
        "@1h:",
        "@-1x",
        "@:1h",
        "@2026-13-01",
        "@2026-11-01T25:00",
        "5-9",
        "999999999999999999999",
    ],
)
def test_invalid_offsets_are_refused(text: str) -> None:
    with pytest.raises(OffsetSyntaxError):
        parse_offsets(text, NOW)


@pytest.mark.parametrize("text", ["9:5", "-5:-10", "@-1h:-2h", "end:-1", "+5:+1"])
def test_range_that_ends_before_it_starts_is_refused(text: str) -> None:
    with pytest.raises(OffsetSyntaxError, match="ends before it starts"):
        parse_offsets(text, NOW)


def test_refusal_shows_a_valid_example() -> None:
    with pytest.raises(OffsetSyntaxError, match=r"'foo' is not an offset; try start, end, 5"):
        parse_offsets("foo", NOW)
    with pytest.raises(OffsetSyntaxError, match=r"'@foo' is not a time; try @-1h"):
        parse_offsets("@foo", NOW)


def test_position_refuses_a_range() -> None:
    assert parse_position("-3", NOW) == OffsetPosition(Anchor.END, 3)
    with pytest.raises(OffsetSyntaxError, match="is a range"):
        parse_position("3:5", NOW)


def test_durations_are_summed() -> None:
    assert duration_ms("1d2h3m4s5ms") == 93_784_005
    with pytest.raises(OffsetSyntaxError, match="try 500ms"):
        duration_ms("5 minutes")
