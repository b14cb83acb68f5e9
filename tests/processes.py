"""One child process that writes to a log file: started, asked to stop, killed, started again.

What brokers, nodes, clusters and peers as processes have in common, for tests and benchmarks. The
log is a file, never a pipe that could fill. Exactly the process that was started is ended.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

LOOK_S = 0.005
STOPPED_S = 10.0
"""After SIGSTOP, on a machine that is busy."""


class ProcessFailed(Exception):
    """It ended, or did not stop; the message carries its log."""


class ProcessSlow(ProcessFailed, TimeoutError):
    """It did not say in time what it was expected to say."""


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
        """Starts it, and returns at once."""
        assert not self.running, "it is already running"
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            # Its own session: a Ctrl-C meant for the test run must not reach it first.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    def wait_said(self, words: "re.Pattern[str]", timeout_s: float) -> "re.Match[str]":
        """Waits until it has said them since its latest start; one that does not is killed."""
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
            time.sleep(LOOK_S)

    def send(self, number: signal.Signals) -> None:
        """SIGSTOP, SIGCONT, or anything else."""
        assert self._process is not None
        self._process.send_signal(number)
        if number == signal.SIGSTOP:
            self._wait_stopped()

    def _wait_stopped(self) -> None:
        """Until none of its threads runs: the signal alone is no promise."""
        assert self._process is not None
        deadline = time.monotonic() + STOPPED_S
        tasks = Path(f"/proc/{self._process.pid}/task")
        while self.running and any(state not in "Tt" for state in _states(tasks)):
            if time.monotonic() > deadline:
                raise ProcessSlow(f"it did not heed SIGSTOP within {STOPPED_S:g} s")
            time.sleep(LOOK_S)

    def wait(self, timeout_s: float = 60.0) -> int:
        assert self._process is not None
        return self._process.wait(timeout_s)

    def stop(self, timeout_s: float = 60.0) -> int:
        """SIGTERM: a clean stop. Returns the exit code; one that hangs is killed, and a failure."""
        if self.running:
            self.send(signal.SIGTERM)
        try:
            return self.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            hung = f"it did not stop within {timeout_s:g} s"
            raise ProcessFailed(f"{hung}:\n{self.all_logs()}") from None

    def kill(self) -> None:
        """SIGKILL: it gets no chance to tidy up."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def log(self) -> str:
        """What it has said since its latest start."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(self._log_start)
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def all_logs(self) -> str:
        """What to show of a failure."""
        return self.log()


def _states(tasks: Path) -> Iterator[str]:
    """Of a process's threads, by the letters of /proc; those that end meanwhile are left out."""
    for task in tasks.iterdir():
        try:
            yield (task / "stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
