"""Time ranges on the command line: `@-1h`, `@-2h:-1h`, `@2026-11-01:1d`."""

from __future__ import annotations

from penstock.cli.terminal.errors import UserError


def parse_times(option: str, text: str | None) -> tuple[int | None, int | None]:
    """Returns start and end in milliseconds; None for an open end."""
    from penstock.client.offset_syntax import Anchor, OffsetSyntaxError, parse_offsets
    from penstock.runtime.clock import SystemClock

    if text is None:
        return None, None
    try:
        found = parse_offsets(text, SystemClock().now_ms())
    except OffsetSyntaxError as error:
        raise UserError(f"{option} {error}") from None
    ends = [found.start, found.end]
    if any(p is not None and p.anchor is Anchor.EXACT for p in ends) or not text.startswith("@"):
        raise UserError(f"{option} {text!r} is not a time; write @-1h, @-2h:-1h, @2026-11-01:1d")
    times = [p.value if p is not None and p.anchor is Anchor.TIME else None for p in ends]
    return times[0], times[1]
