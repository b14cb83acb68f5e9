"""Durations and moments: accepted forms, rejected values."""

from datetime import UTC, datetime, timedelta

import pytest

from penstock.app.durations import moment_ms, ms_of, seconds_of


def test_seconds_timedeltas_and_texts_are_equivalent() -> None:
    for duration in (90, 90.0, timedelta(seconds=90), "90s", "1m30s"):
        assert ms_of(duration) == 90_000
        assert seconds_of(duration) == 90.0
    assert ms_of(0.25) == 250


@pytest.mark.parametrize(
    "wrong", [-1, -0.001, float("inf"), float("nan"), timedelta(-1), "", "5", "soon"]
)
def test_invalid_duration_is_rejected(wrong: float | timedelta | str) -> None:
    with pytest.raises(ValueError, match="duration"):
        ms_of(wrong)


def test_moment_is_zoned_datetime_or_milliseconds() -> None:
    assert moment_ms(datetime(2026, 11, 16, tzinfo=UTC)) == 1_794_787_200_000
    assert moment_ms(1_794_787_200_000) == 1_794_787_200_000
    with pytest.raises(ValueError, match="no time zone"):
        moment_ms(datetime(2026, 11, 16))
    with pytest.raises(ValueError, match="not a time"):
        moment_ms(-1)
