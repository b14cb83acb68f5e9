"""Commands on a terminal: what they say to a user who types, and what a pipe still gets."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.brokers import COMMAND
from tests.conftest import FreshBroker

WAIT_S = 60.0


class Terminal:
    """A command whose input, output and messages are one terminal."""

    def __init__(self, process: "subprocess.Popen[bytes]", end: int) -> None:
        self.process = process
        self.shown = ""
        self._end = end

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def read_until(self, is_shown: Callable[[str], object]) -> None:
        while not is_shown(self.shown):
            self._read()

    def finish(self) -> int:
        """Returns the exit code once all output was read."""
        while True:
            try:
                self._read()
            except OSError:  # The command closed the terminal.
                return self.process.wait(WAIT_S)

    def _read(self) -> None:
        ready, _, _ = select.select([self._end], [], [], WAIT_S)
        if not ready:
            raise TimeoutError(f"nothing more was shown after {self.shown!r}")
        self.shown += os.read(self._end, 65_536).decode()


@contextmanager
def terminal(*command: str) -> Iterator[Terminal]:
    end, side = pty.openpty()
    process = subprocess.Popen(command, stdin=side, stdout=side, stderr=side)
    os.close(side)
    try:
        yield Terminal(process, end)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(end)


def test_start_on_a_terminal_names_addresses_data_and_how_to_stop(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with terminal(COMMAND, "up", "--data", data, "--kafka-port", "0", "--http-port", "0") as seen:
        seen.read_until(lambda shown: "Ctrl-C" in shown)
        assert re.search(r"Kafka +127\.0\.0\.1:\d+\r\n", seen.shown)
        assert re.search(r"Console +http://127\.0\.0\.1:\d+\r\n", seen.shown)
        assert re.search(rf"Data +{re.escape(data)}\r\n", seen.shown)
        assert "penstock ready" not in seen.shown
        seen.process.send_signal(signal.SIGTERM)
        assert seen.finish() == 0


# A progress bar appears after two seconds; here it would appear at once.
IMPATIENT = """
import penstock.cli.terminal.progress as progress
progress.QUIET_S = 0.0
from penstock.cli.main import main
main()
"""


def test_produce_on_a_terminal_tells_how_to_end_and_draws_no_bar(fresh_broker: FreshBroker) -> None:
    broker = fresh_broker()
    command = (sys.executable, "-c", IMPATIENT, "produce", "typed", "-b", broker.bootstrap)
    with terminal(*command) as seen:
        seen.read_until(lambda shown: "Ctrl-D" in shown)
        seen.type("one\ntwo\n\x04")
        assert seen.finish() == 0
    assert "produced 2 records to typed" in seen.shown
    assert "producing" not in seen.shown
    assert "\x1b" not in seen.shown


def test_produce_in_a_pipe_gives_no_hint(fresh_broker: FreshBroker) -> None:
    broker = fresh_broker()
    done = subprocess.run(
        [COMMAND, "produce", "piped", "-b", broker.bootstrap],
        input="one\n",
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout == "produced 1 record to piped: partition 0 offset 0\n"
