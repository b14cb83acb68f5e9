"""Durations (seconds, `timedelta` or "15m") and times (`datetime` or milliseconds)."""

from datetime import datetime, timedelta
from typing import TypeAlias

from penstock.client.offset_syntax import OffsetSyntaxError, duration_ms

Duration: TypeAlias = float | timedelta | str
"""Seconds as a number, a timedelta, or text: "500ms", "30s", "1h30m"."""
Moment: TypeAlias = datetime | int
"""A datetime with a zone, or milliseconds since 1970."""


def ms_of(duration: Duration) -> int:
    """Converts a duration to milliseconds. Raises ValueError if it is negative or invalid."""
    if isinstance(duration, str):
        try:
            return duration_ms(duration)
        except OffsetSyntaxError as error:
            raise ValueError(str(error)) from None
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"duration of {seconds} seconds: pass a finite number of 0 or more")
    return round(seconds * 1000)


def seconds_of(duration: Duration) -> float:
    return ms_of(duration) / 1000


def moment_ms(moment: Moment) -> int:
    """Converts a time to milliseconds since 1970. Raises ValueError without a time zone."""
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ValueError(f"{moment} has no time zone; pass one, as in datetime.now(UTC)")
        return round(moment.timestamp() * 1000)
    if moment < 0:
        raise ValueError(f"{moment} is not a time in milliseconds since 1970")
    return moment
