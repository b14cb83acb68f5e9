"""Failed logins: all are counted, only some are logged."""

import asyncio
import logging

import pytest

from penstock.base.metrics import Counter
from penstock.broker.api.security.failed_logins import LINES_MAX, WINDOW_SECONDS, FailedLogins
from simulation.loop import SimLoop


def test_failed_logins_are_logged_at_a_limited_rate(caplog: pytest.LogCaptureFixture) -> None:
    counter = Counter()

    async def main() -> None:
        failed = FailedLogins(counter)
        for _ in range(1_000):
            failed.note("10.0.0.1", "wrong")
        await asyncio.sleep(WINDOW_SECONDS)
        failed.note("10.0.0.1", "wrong")

    with caplog.at_level(logging.WARNING, "penstock.security"):
        SimLoop(1).run(main())
    assert counter.value == 1_001
    assert len(caplog.messages) == LINES_MAX + 2
    assert f"{1_000 - LINES_MAX} more logins failed meanwhile" in caplog.messages


def test_log_line_of_a_failed_login_is_escaped_and_short(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        FailedLogins(Counter()).note(
            "10.0.0.1", "eve\n2026 INFO admin logged in\x1b[2J" + "x" * 999
        )

    with caplog.at_level(logging.WARNING, "penstock.security"):
        SimLoop(1).run(main())
    (line,) = caplog.messages
    assert "\n" not in line
    assert "\x1b" not in line
    assert len(line) < 300
