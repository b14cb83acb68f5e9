"""One Penstock broker as a child process, for tests and benchmarks.

Owns starting `penstock up`, waiting for its ready line, and ending exactly that process. The
broker writes to a log file beside its data directory, never to a pipe that could fill. What the
broker says about itself is trusted only in the ready line; everything else is asked over Kafka's
protocol or read from /proc.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

READY = re.compile(r"^penstock ready kafka=(?P<kafka>\S+) http=(?P<http>\S+)", re.MULTILINE)
COMMAND = str(Path(sys.executable).parent / "penstock")


class BrokerFailed(Exception):
    """The process ended, or never said that it serves; the message carries its log."""


class PenstockProcess:
    """One `penstock up`, started by the constructor unless told not to; `start` it after `stop`."""

    def __init__(
        self,
        data_dir: Path,
        sets: Mapping[str, object] | None = None,
        *,
        kafka_port: int = 0,
        http_port: int = 0,
        ready_timeout_s: float = 60.0,
        started: bool = True,
    ) -> None:
        self.data_dir = data_dir
        self.sets = dict(sets or {})
        self.kafka_port = kafka_port
        self.http_port = http_port
        self.ready_timeout_s = ready_timeout_s
        self.log_path = data_dir.with_name(data_dir.name + ".log")
        self.bootstrap = ""
        self.http = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        if started:
            self.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Run the broker and return when it serves."""
        self.spawn()
        self.wait_ready()

    def spawn(self) -> None:
        """Run the broker and return at once."""
        assert not self.running, "the broker is already running"
        command = [COMMAND, "up", "--data", str(self.data_dir)]
        command += ["--kafka-port", str(self.kafka_port), "--http-port", str(self.http_port)]
        for name, value in self.sets.items():
            command += ["--set", f"{name}={value}"]
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            # Its own session: a Ctrl-C meant for the test run must not reach the broker first.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    def wait_ready(self) -> None:
        """Wait for the ready line and learn the addresses from it."""
        assert self._process is not None
        deadline = time.monotonic() + self.ready_timeout_s
        while True:
            ready = READY.search(self.log())
            if ready is not None:
                self.bootstrap, self.http = ready["kafka"], ready["http"]
                return
            if self._process.poll() is not None:
                code = self._process.returncode
                raise BrokerFailed(f"the broker ended with code {code}:\n{self.log()}")
            if time.monotonic() > deadline:
                self.kill()
                waited = f"{self.ready_timeout_s:g} s"
                raise BrokerFailed(f"no ready line within {waited}:\n{self.log()}")
            time.sleep(0.005)

    def stop(self, timeout_s: float = 30.0) -> int:
        """SIGTERM: a clean stop. Returns the exit code; a broker that hangs is a failure."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
                hung = f"the broker did not stop within {timeout_s:g} s"
                raise BrokerFailed(f"{hung}:\n{self.log()}") from None
        return self._process.returncode

    def kill(self) -> None:
        """SIGKILL: the process gets no chance to tidy up."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def log(self) -> str:
        """What the broker wrote since its latest start."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(self._log_start)
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
