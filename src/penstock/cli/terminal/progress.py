"""Progress on standard error for what takes longer than two seconds.

On a terminal a bar (or a spinner where the end is not known), elsewhere a plain line now and
then, so that logs of a script stay short. Quick work shows nothing at all.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

QUIET_S = 2.0
LINE_EVERY_S = 5.0


class Progress:
    """`with Progress("producing", total=1000) as progress: progress.advance(10)`."""

    def __init__(self, title: str, total: int | None = None, unit: str = "records") -> None:
        self._title = title
        self._total = total
        self._unit = unit
        self._done = 0
        self._started = time.monotonic()
        self._shown_at = self._started + QUIET_S - LINE_EVERY_S
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    @classmethod
    def silent(cls) -> Progress:
        """Counts, and never shows."""
        made = cls("")
        made._started = float("inf")
        return made

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, count: int = 1) -> None:
        self._done += count
        now = time.monotonic()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done)
        elif now - self._started >= QUIET_S:
            if sys.stderr.isatty():
                self._start_bar()
            elif now - self._shown_at >= LINE_EVERY_S:
                self._shown_at = now
                self._print_line(now)

    def _print_line(self, now: float) -> None:
        rate = self._done / max(now - self._started, 1e-9)
        of = f" of {self._total:,}" if self._total else ""
        print(
            f"{self._title}: {self._done:,}{of} {self._unit}, {rate:,.0f}/s",
            file=sys.stderr,
            flush=True,
        )

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as Bar

        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(self._unit),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(self._title, total=self._total, completed=self._done)
        self._bar.start()
