"""Times on the command line."""

import pytest

from penstock.cli.terminal.errors import UserError
from penstock.cli.terminal.time_ranges import parse_times


def test_time_ranges_are_parsed() -> None:
    assert parse_times("--time", None) == (None, None)
    start, end = parse_times("--time", "@2026-11-01:1d")
    assert start is not None
    assert end is not None
    assert end - start == 86_400_000
    assert parse_times("--at", "@:2026-11-01") == (None, start)


def test_invalid_time_is_refused() -> None:
    for text in ("12", "@soon", "5-9"):
        with pytest.raises(UserError, match="--time"):
            parse_times("--time", text)
