"""The load generator: built from load.c when first needed, run as a process of its own.

Kept outside Python so that the client is not the bottleneck. The binary lives in the project's
.cache and is rebuilt when its source changes.
"""

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent / "load.c"
CACHE = Path(__file__).parents[2] / ".cache" / "bench"

# Defaults of librdkafka except for a queue that holds a second of the fastest workload.
PRODUCER = {
    "acks": "all",
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 512 * 1024,
}
LATENCY = {"acks": "all", "linger.ms": 0, "socket.nagle.disable": "true"}


class LoadFailed(Exception):
    """The load generator could not be built, or did not get through."""


def binary() -> Path:
    """The path of the compiled load generator."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    path = CACHE / f"load-{digest}"
    if path.exists():
        return path
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise LoadFailed("the load generator needs a C compiler (apt-get install gcc libc6-dev)")
    CACHE.mkdir(parents=True, exist_ok=True)
    building = path.with_suffix(f".{os.getpid()}")
    command = [compiler, "-O2", "-Wall", "-o", str(building), str(SOURCE), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LoadFailed(f"the load generator does not compile:\n{done.stderr}")
    building.rename(path)
    return path


def library() -> Path:
    """The librdkafka inside the confluent-kafka package."""
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
    rate: int | None = None,
    settings: dict[str, object] | None = None,
) -> dict[str, float]:
    """Run one workload to its end and return what it measured."""
    command = [str(binary()), str(library()), mode, bootstrap, topic]
    command += [str(number) for number in (partitions, count, size)]
    command += [] if rate is None else [str(rate)]
    command += [f"{name}={value}" for name, value in (settings or {}).items()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LoadFailed(f"{mode} against {bootstrap}: {done.stderr.strip()[-2000:]}")
    measured: dict[str, float] = json.loads(done.stdout)
    return measured
