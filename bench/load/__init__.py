"""Load generators in C, compiled on first use and run as separate processes.

Written in C so that the client is not the bottleneck. The binaries are in the project's
.cache and are rebuilt when their source changes.
"""

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
CACHE = Path(__file__).parents[2] / ".cache" / "bench"

# Defaults of librdkafka except for a queue that holds a second of the fastest workload.
PRODUCER = {
    "acks": "all",
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 512 * 1024,
}
# A transaction ends when all of its records are delivered, so a commit every 100 ms needs a queue
# that drains in much less time.
TXNS = {"queue.buffering.max.messages": 100_000, "queue.buffering.max.kbytes": 16 * 1024}
LATENCY = {"acks": "all", "linger.ms": 0, "socket.nagle.disable": "true"}


class LoadFailed(Exception):
    """The load generator could not be built, or has failed."""


def binary(name: str = "load") -> Path:
    """Path of a compiled load generator: `load` (librdkafka) or `pipe` (prepared frames)."""
    source = HERE / f"{name}.c"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    path = CACHE / f"{name}-{digest}"
    if path.exists():
        return path
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise LoadFailed("the load generator needs a C compiler (apt-get install gcc libc6-dev)")
    CACHE.mkdir(parents=True, exist_ok=True)
    building = path.with_suffix(f".{os.getpid()}")
    command = [compiler, "-O2", "-Wall", "-o", str(building), str(source), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LoadFailed(f"the load generator does not compile:\n{done.stderr}")
    building.rename(path)
    return path


def library() -> Path:
    """Path of the librdkafka in the confluent-kafka package."""
    package = importlib.util.find_spec("confluent_kafka")
    if package is None or package.origin is None:
        raise LoadFailed("confluent-kafka is not installed (pip install -e '.[clients]')")
    libs = Path(package.origin).parents[1] / "confluent_kafka.libs"
    found = sorted(libs.glob("librdkafka-*.so*"))
    if not found:
        raise LoadFailed(f"no librdkafka in {libs}")
    return found[0]


def run(
    mode: str,
    bootstrap: str,
    topic: str,
    partitions: int,
    count: int,
    size: int,
    pace: int | None = None,
    settings: dict[str, object] | None = None,
) -> dict[str, float]:
    """Runs one workload to its end and returns its measurements.

    `pace`: messages a second for `latency`, milliseconds between commits for `txns`.
    """
    command = [str(binary()), str(library()), mode, bootstrap, topic]
    command += [str(number) for number in (partitions, count, size)]
    command += [] if pace is None else [str(pace)]
    command += [f"{name}={value}" for name, value in (settings or {}).items()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LoadFailed(f"{mode} against {bootstrap}: {done.stderr.strip()[-2000:]}")
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def pipe(bootstrap: str, prepared: Sequence[tuple[bytes, bytes]], count: int, window: int) -> float:
    """Seconds for `count` repetitions of prepared requests, one per connection."""
    host, _, port = bootstrap.rpartition(":")
    numbers = [str(number) for number in (len(prepared), count, window)]
    done = subprocess.run(
        [str(binary("pipe")), host, port, *numbers],
        input=b"".join(frame for pair in prepared for frame in pair),
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise LoadFailed(f"pipe against {bootstrap}: {done.stderr.decode().strip()[-2000:]}")
    seconds: float = json.loads(done.stdout)["seconds"]
    return seconds
