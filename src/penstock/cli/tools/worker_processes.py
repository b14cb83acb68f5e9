"""Several processes of one worker, and their restart when its source changes.

The parent starts `count` children with its own command line, restarts one that dies, and forwards
SIGTERM and SIGINT. Children have process groups of their own, so Ctrl-C reaches them once: a second
signal would end their grace period. A child that refuses to start, within `EARLY_S`, ends
everything, as a misspelt name would fail for ever; with `reload`, the next change is awaited.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from penstock.base.retry import Retry
from penstock.cli.tools.worker import CHILD_VARIABLE
from penstock.runtime.random import SystemRandom

EARLY_S = 5.0
POLL_S = 0.5
FILES_MAX = 10_000
"""Limits the watched files."""
_SKIPPED = ("__pycache__", "node_modules", "site-packages", "build", "dist")
_REFUSED = 1
"""Exit code of a command that cannot run: a misspelt name, an unreachable broker."""
_PAUSE_S = (1.0, 30.0)


def run_processes(count: int, *, reload: bool) -> int:
    """Runs the processes until a signal; returns the exit code."""
    return asyncio.run(_Processes(count, reload).run())


class _Processes:
    def __init__(self, count: int, reload: bool) -> None:
        self._count = count
        self._reload = reload
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._code = 0

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        watching = loop.create_task(self._watch()) if self._reload else None
        await asyncio.gather(*(self._keep(place) for place in range(self._count)))
        if watching is not None:
            watching.cancel()
        return self._code

    def _stop(self, number: int = signal.SIGTERM) -> None:
        self._stopping.set()
        self._changed.set()
        self._signal(number)

    def _signal(self, number: int) -> None:
        for process in self._running.values():
            if process.returncode is None:
                process.send_signal(number)

    async def _keep(self, place: int) -> None:
        """Keeps one process running."""
        loop = asyncio.get_running_loop()
        retry = Retry(SystemRandom(), *_PAUSE_S)
        is_first = True
        while not self._stopping.is_set():
            begin = loop.time()
            changes = self._changed
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, sys.argv[0], *sys.argv[1:]),
                env={**os.environ, CHILD_VARIABLE: "1"},
                process_group=0,
            )
            self._running[place] = process
            if self._stopping.is_set():
                process.send_signal(signal.SIGTERM)  # The signal came while it was started.
            code = await process.wait()
            if self._stopping.is_set() or changes.is_set():
                continue
            if self._reload:
                print(f"worker exited with code {code}; waiting for a change", file=sys.stderr)
                await changes.wait()
                continue
            if is_first and code == _REFUSED and loop.time() - begin < EARLY_S:
                self._code = self._code or code
                self._stop()
                return
            if loop.time() - begin > _PAUSE_S[1]:
                retry.succeeded()
            print(f"worker exited with code {code}; starting another one", file=sys.stderr)
            is_first = False
            await self._pause(retry.next_s())

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _watch(self) -> None:
        """Stops the children when a source file changes; `_keep` starts them again."""
        before = source_times(Path.cwd())
        while True:
            await asyncio.sleep(POLL_S)
            now = source_times(Path.cwd())
            if now != before:
                changed = sorted(
                    str(path.name) for path in {*before, *now} if before.get(path) != now.get(path)
                )
                print(f"{', '.join(changed[:3])} changed; restarting", file=sys.stderr)
                before = now
                changes, self._changed = self._changed, asyncio.Event()
                changes.set()
                self._signal(signal.SIGTERM)


def source_times(folder: Path) -> dict[Path, int]:
    """Modification times of the Python files below a folder."""
    found: dict[Path, int] = {}
    for root, folders, files in os.walk(folder):
        folders[:] = [one for one in folders if not one.startswith(".") and one not in _SKIPPED]
        for name in files:
            if not name.endswith(".py") or len(found) >= FILES_MAX:
                continue
            path = Path(root, name)
            try:
                found[path] = path.stat().st_mtime_ns
            except FileNotFoundError:
                continue
    return found
