"""One real Redis as a child process, for tests: on its own socket, without persistence."""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

READY_S = 30.0


def find_redis() -> str:
    """The program. In CI its absence is a failure, elsewhere a skip with a reason."""
    found = shutil.which("redis-server")
    if found is not None:
        return found
    reason = "Redis is not installed; see tests/clients/ensure_tools.sh"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


class RedisProcess:
    """A server on a Unix socket, started by the constructor."""

    def __init__(self) -> None:
        program = find_redis()
        self._directory = Path(tempfile.mkdtemp(prefix="redis-"))
        self.socket = str(self._directory / "socket")
        command = [program, "--port", "0", "--unixsocket", self.socket, "--save", ""]
        self._process = subprocess.Popen(
            [*command, "--appendonly", "no", "--dir", str(self._directory)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + READY_S
        while not Path(self.socket).exists():
            assert self._process.poll() is None, "redis-server ended"
            if time.monotonic() >= deadline:
                raise TimeoutError("redis-server does not start")
            time.sleep(0.01)

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        shutil.rmtree(self._directory, ignore_errors=True)
