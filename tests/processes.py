"""One child process that writes to a log file: started, stopped, killed, restarted.

Common base of broker, node, cluster and peer processes, for tests and benchmarks. The log is a
file, never a pipe that could fill. Exactly the started process is ended.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

POLL_S = 0.005
STOPPED_S = 10.0
"""Limit after SIGSTOP, on a busy machine."""


class ProcessFailed(Exception):
    """The process ended, or did not stop; the message carries its log."""


class ProcessSlow(ProcessFailed, TimeoutError):
    """The process did not log the expected line in time."""


class LoggedProcess:
    """At most one process at a time, run by `run`."""

    def __init__(self, log_path: Path) -> None:
        self.log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def run(self, command: Sequence[str]) -> None:
        """Starts the process, and returns at once."""
        assert not self.running, "it is already running"
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            # A session of its own: a Ctrl-C meant for the test run must not reach it first.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    def wait_said(self, words: "re.Pattern[str]", timeout_s: float) -> "re.Match[str]":
        """Waits until a line logged since the latest start matches; a timeout kills the process."""
        assert self._process is not None
        deadline = time.monotonic() + timeout_s
        while True:
            has_ended = not self.running
            if (found := words.search(self.log())) is not None:
                return found
            if has_ended:
                code = self._process.returncode
                raise ProcessFailed(f"it ended with code {code}:\n{self.all_logs()}")
            if time.monotonic() > deadline:
                self.kill()
                slow = f"no {words.pattern!r} within {timeout_s:g} s"
                raise ProcessSlow(f"{slow}:\n{self.all_logs()}")
            time.sleep(POLL_S)

    def send(self, number: signal.Signals) -> None:
        """SIGSTOP, SIGCONT, or anything else."""
        assert self._process is not None
        self._process.send_signal(number)
        if number == signal.SIGSTOP:
            self._wait_stopped()

    def _wait_stopped(self) -> None:
        """Waits until none of its threads runs: the signal alone does not guarantee it."""
        assert self._process is not None
        deadline = time.monotonic() + STOPPED_S
        tasks = Path(f"/proc/{self._process.pid}/task")
        while self.running and any(state not in "Tt" for state in _states(tasks)):
            if time.monotonic() > deadline:
                raise ProcessSlow(f"it did not heed SIGSTOP within {STOPPED_S:g} s")
            time.sleep(POLL_S)

    def wait(self, timeout_s: float = 60.0) -> int:
        assert self._process is not None
        return self._process.wait(timeout_s)

    def stop(self, timeout_s: float = 60.0) -> int:
        """Sends SIGTERM: a clean stop. Returns the exit code; a process that hangs is killed, and a
        failure.
        """
        if self.running:
            self.send(signal.SIGTERM)
        try:
            return self.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            hung = f"it did not stop within {timeout_s:g} s"
            raise ProcessFailed(f"{hung}:\n{self.all_logs()}") from None

    def kill(self) -> None:
        """Sends SIGKILL: no cleanup."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def log(self) -> str:
        """Log since the latest start."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(self._log_start)
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def all_logs(self) -> str:
        """Logs to show with a failure."""
        return self.log()


def _states(tasks: Path) -> Iterator[str]:
    """States of a process's threads, as in /proc; those that end meanwhile are skipped."""
    for task in tasks.iterdir():
        try:
            yield (task / "stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
