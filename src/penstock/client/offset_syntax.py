"""Offset grammar of the command line and the client: parses text to positions.

    start  end          the first record in the log; the next one to be written
    5   +10   -10       offset 5; ten after the start; ten before the end
    5:9   :9   5:       from 5 to 9, excluded; from the start to 9; from 5 on
    -10:end   :end      to the current end
    @-1h                from the first record an hour old or younger
    @2026-11-01:end     from a time (UTC unless it names a zone) to the current end
    @-2h:-1h  @T:30m    between two times (@-2h:@-1h is the same); a plain duration counts from
                        the first
    @1700000000[000]    seconds or milliseconds since 1970

Parsing is pure: "now" is an argument. `penstock.client.list_offsets` resolves positions to offsets
of each partition.
"""

import enum
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.base.ids import Millis


class Anchor(enum.Enum):
    EXACT = "exact"
    START = "start"
    END = "end"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class OffsetPosition:
    """Position in a log: an anchor and a distance from it, or an exact offset or time."""

    anchor: Anchor
    value: int = 0


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Range from `start` to `end`, excluded; None: no end."""

    start: OffsetPosition
    end: OffsetPosition | None = None


START = OffsetPosition(Anchor.START)
END = OffsetPosition(Anchor.END)


class OffsetSyntaxError(ValueError):
    """Text that does not match the grammar; the message shows examples."""


_EXAMPLES = "try start, end, 5, +10, -10, 5:9, @-1h, @2026-11-01:end"
_TIME_EXAMPLES = "try @-1h, @-2h:-1h, @2026-11-01, @2026-11-01T12:00:end, @1700000000"
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = r"(?:\d+(?:ms|s|m|h|d))+"
_DATE = (
    r"\d{4}-\d{2}-\d{2}"
    r"(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
)
_TIMES = re.compile(
    rf"@(?P<start>{_DATE}|-{_DURATION}|\d+)?"
    rf"(?P<colon>:@?(?P<end>end|{_DATE}|-?{_DURATION}|\d+)?)?"
)
_POINT = re.compile(r"start|end|[+-]?\d{1,18}")


def parse_offsets(text: str, now: Millis) -> OffsetRange:
    """Parses one offset or range. Raises OffsetSyntaxError with examples."""
    text = text.strip()
    if text.startswith("@"):
        return _parse_times(text, now)
    first, _, last = text.partition(":")
    if not first and not last:
        raise OffsetSyntaxError(f"{text!r} is not an offset; {_EXAMPLES}")
    start = _parse_point(first, text) if first else START
    end = _parse_point(last, text) if last else None
    _check_order(start, end, text)
    return OffsetRange(start, end)


def parse_position(text: str, now: Millis) -> OffsetPosition:
    """Parses one offset. Raises OffsetSyntaxError for a range."""
    found = parse_offsets(text, now)
    if found.end is not None:
        raise OffsetSyntaxError(f"{text!r} is a range; one offset is needed here")
    return found.start


def _parse_point(part: str, text: str) -> OffsetPosition:
    if not _POINT.fullmatch(part):
        where = "" if part == text else f" in {text!r}"
        raise OffsetSyntaxError(f"{part!r}{where} is not an offset; {_EXAMPLES}")
    if part == "start":
        return START
    if part == "end":
        return END
    if part[0] == "+":
        return OffsetPosition(Anchor.START, int(part[1:]))
    if part[0] == "-":
        return OffsetPosition(Anchor.END, int(part[1:]))
    return OffsetPosition(Anchor.EXACT, int(part))


def _parse_times(text: str, now: Millis) -> OffsetRange:
    match = _TIMES.fullmatch(text)
    if match is None or not (match["start"] or match["end"]):
        raise OffsetSyntaxError(f"{text!r} is not a time; {_TIME_EXAMPLES}")
    start = START
    if match["start"]:
        start = OffsetPosition(Anchor.TIME, _parse_time(match["start"], text, now))
    end: OffsetPosition | None = None
    if match["end"] == "end":
        end = END
    elif match["end"]:
        last = match["end"]
        if re.fullmatch(_DURATION, last):
            if not match["start"]:
                raise OffsetSyntaxError(f"{text!r}: a duration needs a time to count from")
            end = OffsetPosition(Anchor.TIME, start.value + duration_ms(last))
        else:
            end = OffsetPosition(Anchor.TIME, _parse_time(last, text, now))
    _check_order(start, end, text)
    return OffsetRange(start, end)


def _parse_time(part: str, text: str, now: Millis) -> int:
    if part.startswith("-"):
        return now - duration_ms(part[1:])
    if part.isdigit():
        # Seconds have ten digits until the year 2286; milliseconds have thirteen today.
        return int(part) * 1000 if len(part) <= 10 else int(part)
    try:
        moment = datetime.fromisoformat(part)
    except ValueError as error:
        raise OffsetSyntaxError(f"{part!r} in {text!r} is not a time: {error}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def duration_ms(text: str) -> int:
    """Converts a duration such as `1h30m` to milliseconds."""
    if not re.fullmatch(_DURATION, text):
        raise OffsetSyntaxError(f"{text!r} is not a duration; try 500ms, 30s, 15m, 1h30m, 7d")
    parts = re.findall(r"(\d+)(ms|s|m|h|d)", text)
    return sum(int(count) * _UNITS_MS[unit] for count, unit in parts)


def _check_order(start: OffsetPosition, end: OffsetPosition | None, text: str) -> None:
    """Refuses ranges that are empty whatever the log holds."""
    if end is None or start.anchor is not end.anchor:
        return
    backwards = start.value < end.value if start.anchor is Anchor.END else start.value > end.value
    if backwards:
        raise OffsetSyntaxError(f"{text!r} ends before it starts")
