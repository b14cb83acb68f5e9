"""Progress appears after two seconds, on standard error, and not for quick work."""

import time

import pytest

from penstock.cli.terminal.progress import Progress


class _Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


def test_quick_work_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = _Clock(monkeypatch)
    with Progress("sending", 10) as progress:
        for _ in range(10):
            clock.now += 0.1
            progress.advance()
    assert capsys.readouterr() == ("", "")


def test_slow_work_says_how_far_it_is_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = _Clock(monkeypatch)
    with Progress("sending", 1000) as progress:
        for _ in range(20):
            clock.now += 0.5
            progress.advance(50)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "sending: 200 of 1,000 records, 100/s\nsending: 700 of 1,000 records, 100/s\n"
    )
