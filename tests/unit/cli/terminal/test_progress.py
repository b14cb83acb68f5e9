"""Progress appears after two seconds, on standard error, and on terminals only."""

import io
import sys
import time

import pytest

from penstock.cli.terminal.progress import Progress


class _Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    return _Clock(monkeypatch)


def terminal(monkeypatch: pytest.MonkeyPatch) -> _Terminal:
    """Called in a test's body: pytest puts its own streams in place after the fixtures."""
    shown = _Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    return shown


def work(clock: _Clock, seconds: float, progress: Progress) -> None:
    with progress:
        for _ in range(10):
            clock.now += seconds / 10
            progress.advance(50)


def test_quick_work_shows_nothing(clock: _Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    work(clock, 1.9, Progress("sending", 500))
    assert shown.getvalue() == ""


def test_slow_work_shows_a_bar_on_standard_error(
    clock: _Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = terminal(monkeypatch)
    work(clock, 10, Progress("sending [bold]", 500, "rows"))
    assert "sending [bold]" in shown.getvalue()
    assert "500/500" in shown.getvalue()
    assert "rows" in shown.getvalue()
    assert capsys.readouterr().out == ""


def test_work_of_unknown_size_shows_its_count(
    clock: _Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = terminal(monkeypatch)
    work(clock, 10, Progress("reading"))
    assert "500/?" in shown.getvalue()


def test_silent_progress_shows_nothing(clock: _Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    work(clock, 10, Progress.silent())
    assert shown.getvalue() == ""


def test_progress_needs_a_terminal_on_standard_error(
    clock: _Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    work(clock, 10, Progress("sending", 500))
    assert capsys.readouterr() == ("", "")
