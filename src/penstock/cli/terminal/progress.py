"""Progress bars on standard error, drawn by rich, for work that takes longer than two seconds.

They appear only if standard error is a terminal. rich is imported when a bar appears, so that
quick commands do not wait for it.
"""

from __future__ import annotations

import math
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

QUIET_S = 2.0


class Progress:
    """`with Progress("producing", total=1000) as progress: progress.advance(10)`."""

    def __init__(self, title: str, total: int | None = None, unit: str = "records") -> None:
        self._title = title
        self._total = total
        self._unit = unit
        self._done = 0
        self._shown_from = time.monotonic() + QUIET_S if sys.stderr.isatty() else math.inf
        self._bar: Bar | None = None

    @classmethod
    def silent(cls) -> Progress:
        """Returns a progress that only counts."""
        made = cls("")
        made._shown_from = math.inf
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
        if self._bar is None:
            if time.monotonic() < self._shown_from:
                return
            self._bar = self._start()
        (task,) = self._bar.task_ids
        self._bar.update(task, completed=self._done)

    def _start(self) -> Bar:
        from rich import progress

        from penstock.cli.terminal.output import console

        bar = progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn(self._unit),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=console(stderr=True),
            transient=True,
        )
        bar.add_task(self._title, total=self._total)
        bar.start()
        return bar
