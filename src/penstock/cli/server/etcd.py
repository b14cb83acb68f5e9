"""etcd as a child process: find the program, start it, wait until it serves, stop it.

Runs one etcd member on this machine for `penstock up --nodes`. The data directory stays, and a new
start continues with it. It listens on loopback only. Its output goes to a log file beside its data,
never to a pipe that could fill.
Does not restart etcd (the supervisor's task) and is not meant for production.
"""

import asyncio
import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from penstock.runtime.etcd.http import EtcdEndpoint, connect
from penstock.runtime.etcd.pool import VERSION_MIN

HOST = "127.0.0.1"
READY_S = 30.0
STOP_S = 10.0
KEPT_REVISIONS = 10_000
"""etcd compacts older revisions: a watcher further behind than this reads everything again."""
LOG_LINES_SHOWN = 5
BUILT = "3.6.16"
"""Version that `make etcd` builds in a checkout; tools/etcd/go.mod pins it."""

_PR_SET_PDEATHSIG = 1


class EtcdFailed(Exception):
    """etcd is missing or does not run; the message says what to do."""


def find_etcd() -> str:
    """Returns the path of an etcd that is new enough; raises EtcdFailed if there is none.

    Tries `PENSTOCK_ETCD`, then the PATH, then the directory where a checkout builds it.
    """
    seen = []
    for path in _places():
        version = _version_of(path)
        if version is not None and version >= VERSION_MIN:
            return path
        shown = ".".join(map(str, version)) if version else "not etcd"
        seen.append(f"{path} is {shown}")
    found = f" ({'; '.join(seen)})" if seen else ""
    raise EtcdFailed(
        f"found no etcd 3.6 or newer{found}. Install it from "
        "https://github.com/etcd-io/etcd/releases and put it on the PATH, or name it with "
        "PENSTOCK_ETCD=/path/to/etcd. In a checkout with Go, `make etcd` builds it."
    )


def _places() -> Iterator[str]:
    named = os.environ.get("PENSTOCK_ETCD")
    if named:
        yield named
        return
    on_path = shutil.which("etcd")
    if on_path is not None:
        yield on_path
    built = Path(__file__).parents[4] / ".cache" / "etcd" / BUILT / "etcd"
    if built.exists():
        yield str(built)


def _version_of(path: str) -> tuple[int, ...] | None:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    numbers = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", done.stdout)
    return tuple(map(int, numbers.groups())) if numbers else None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
        return port


def etcd_command(binary: str, data_dir: str, client_port: int, peer_port: int) -> list[str]:
    """Returns the command line of a single-member etcd cluster."""
    client, peer = f"http://{HOST}:{client_port}", f"http://{HOST}:{peer_port}"
    options = {
        "name": "penstock",
        "data-dir": data_dir,
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"penstock={peer}",
        "auto-compaction-mode": "revision",
        "auto-compaction-retention": str(KEPT_REVISIONS),
        "watch-progress-notify-interval": "10s",
        "log-level": "warn",
    }
    return [binary, *(f"--{name}={value}" for name, value in options.items())]


class EtcdChild:
    """Running etcd process. Created by `start_etcd`."""

    def __init__(
        self, process: asyncio.subprocess.Process, endpoint: EtcdEndpoint, log_path: Path
    ) -> None:
        self._process = process
        self._log_path = log_path
        self._endpoint = endpoint
        self.url = str(endpoint)
        self.pid = process.pid

    async def wait(self) -> int:
        """Waits for the process to end, for whatever reason; returns its exit code."""
        return await self._process.wait()

    async def stop(self) -> None:
        """Stops the process: SIGTERM, then SIGKILL. etcd loses nothing either way."""
        if self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def ready(self) -> None:
        """Waits until etcd serves. Otherwise stops it and raises EtcdFailed."""
        try:
            async with asyncio.timeout(READY_S):
                while not await self._is_healthy():
                    if self._process.returncode is not None:
                        raise EtcdFailed(f"etcd ended at once: {self._last_words()}")
                    await asyncio.sleep(0.02)
        except TimeoutError:
            await self.stop()
            raise EtcdFailed(
                f"etcd does not serve after {READY_S:.0f} s: {self._last_words()}"
            ) from None
        except BaseException:
            await self.stop()
            raise

    async def _is_healthy(self) -> bool:
        try:
            connection = await connect(self._endpoint, None)
            try:
                status, body = await connection.ask("GET", "/health", b"", "")
            finally:
                connection.close()
        except ConnectionError:
            return False
        return status == 200 and b'"true"' in body

    def _last_words(self) -> str:
        lines = self._log_path.read_text(errors="replace").splitlines()
        return "\n".join([f"see {self._log_path}", *lines[-LOG_LINES_SHOWN:]])


async def start_etcd(
    data_dir: str, client_port: int = 0, peer_port: int = 0, *, binary: str | None = None
) -> EtcdChild:
    """Starts etcd on `data_dir` (created if missing) and returns when it serves.

    Port 0 picks a free port. Raises EtcdFailed. The child ends with this process.
    """
    binary = binary or find_etcd()
    client_port = _choose_port(client_port)
    peer_port = _choose_port(peer_port)
    log_path = _prepare(Path(data_dir))
    with log_path.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *etcd_command(binary, data_dir, client_port, peer_port),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Only the supervisor gets Ctrl-C; it stops etcd last.
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
    child = EtcdChild(process, EtcdEndpoint(HOST, client_port, is_tls=False), log_path)
    await child.ready()
    return child


def _choose_port(port: int) -> int:
    """Checks that the port is free: another etcd there would answer in the child's place."""
    if port == 0:
        return free_port()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            raise EtcdFailed(f"etcd cannot listen on {HOST}:{port}: {error.strerror}") from error
    return port


def _prepare(directory: Path) -> Path:
    """Creates the data directory, for its owner only, and returns the log file's path."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)
    return directory.with_name(directory.name + ".log")


def _end_with_parent() -> None:
    """Runs in the child and makes etcd end with a killed supervisor."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
