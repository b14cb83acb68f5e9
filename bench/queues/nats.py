"""NATS JetStream, one server with file storage, driven by its own `nats bench`."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.kafka import PeerMissing, free_port
from bench.queues.cycles import MESSAGES, SIZE, UNCONFIRMED, Cycles

RATE = re.compile(r"([\d,]+) msgs/sec")


@contextmanager
def running(programs: Path) -> Iterator[str]:
    """A server of its own, stopped and wiped at the end; its URL."""
    server_path = shutil.which("nats-server", path=str(programs)) or shutil.which("nats-server")
    tool = shutil.which("nats", path=str(programs)) or shutil.which("nats")
    if server_path is None or tool is None:
        raise PeerMissing(
            "NATS is not installed (go install github.com/nats-io/nats-server/v2@latest and "
            "github.com/nats-io/natscli/nats@latest)"
        )
    directory = tempfile.mkdtemp(prefix="nats")
    port = free_port()
    server = subprocess.Popen(
        [server_path, "-js", "-a", "127.0.0.1", "-p", str(port), "-sd", directory],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    try:
        yield f"nats://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)
        shutil.rmtree(directory, ignore_errors=True)


def cycles(url: str, consumers: int, programs: Path, messages: int = MESSAGES) -> Cycles:
    """Publishing with acknowledgements and consuming with explicit ones, one after the other: the
    tool does not do both at once, so the rate of cycles is that of the two in a row."""
    tool = shutil.which("nats", path=str(programs)) or "nats"
    stream = f"bench{free_port()}"
    common = ["--server", url, "--no-progress", "--msgs", str(messages), "--stream", stream]
    publish = [tool, "bench", "js", "pub", "async", f"{stream}.x", "--create", *common]
    publish += ["--storage", "file", "--size", str(SIZE), "--batch", str(UNCONFIRMED)]
    consume = [tool, "bench", "js", "consume", "--acks", "explicit", *common]
    consume += ["--batch", "500", "--clients", str(consumers)]
    published, consumed = _run(publish), _run(consume)
    return Cycles(1 / (1 / _rate(published) + 1 / _rate(consumed)))


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout + done.stderr


def _rate(text: str) -> float:
    found = RATE.findall(text)
    assert found, text[-1000:]
    return float(found[-1].replace(",", ""))
