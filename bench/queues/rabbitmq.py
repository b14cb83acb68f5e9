"""RabbitMQ from Debian's package, driven by its own perf-test: a quorum queue with confirms."""

import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.kafka import PeerMissing, free_port
from bench.queues.cycles import LATENCY_SECONDS, MESSAGES, PACE, SIZE, UNCONFIRMED, Cycles

SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"
READY_S = 90


@contextmanager
def running() -> Iterator[str]:
    """Separate broker, stopped and deleted at the end; yields its URI."""
    if not Path(SERVER).exists():
        raise PeerMissing("RabbitMQ is not installed (apt-get install rabbitmq-server)")
    directory = Path(tempfile.mkdtemp(prefix="rabbit"))
    port, distribution = free_port(), free_port()
    config = directory / "rabbitmq.conf"
    config.write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
    environment = {
        "PATH": "/usr/lib/rabbitmq/bin:/usr/sbin:/usr/bin:/bin",
        "HOME": str(directory),
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(directory / "data"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_CONFIG_FILE": str(config),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
    }
    (directory / "plugins").write_text("[].\n")
    server = subprocess.Popen(
        [SERVER], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    )
    try:
        _wait(port)
        yield f"amqp://guest:guest@127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)
        shutil.rmtree(directory, ignore_errors=True)


def _wait(port: int) -> None:
    """Waits for the port, which RabbitMQ opens last."""
    deadline = time.monotonic() + READY_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise PeerMissing("RabbitMQ did not start") from None
            time.sleep(0.2)


def cycles(uri: str, consumers: int, jars: Path, messages: int = MESSAGES) -> Cycles:
    fast = _perf(
        uri, consumers, jars, ["--pmessages", str(messages), "--confirm", str(UNCONFIRMED)]
    )
    slow = _perf(
        uri,
        consumers,
        jars,
        ["--rate", str(PACE), "--confirm", str(UNCONFIRMED), "--time", str(LATENCY_SECONDS)],
    )
    rate = re.search(r"receiving rate avg: ([\d.]+) msg/s", fast)
    assert rate, fast[-2000:]
    latencies = re.findall(r"consumer latency min/median/75th/95th/99th ([\d./]+) (\S+)", slow)
    p99 = None
    if latencies:
        numbers, unit = latencies[-1]
        p99 = float(numbers.split("/")[4]) / (1000 if unit == "µs" else 1)
    return Cycles(float(rate.group(1)), p99)


def _perf(uri: str, consumers: int, jars: Path, more: list[str]) -> str:
    command = ["java", "-cp", f"{jars}/*", "com.rabbitmq.perf.PerfTest", "--uri", uri]
    command += ["--quorum-queue", "--queue", f"q{free_port()}", "--size", str(SIZE)]
    command += ["--producers", "1", "--consumers", str(consumers), "--qos", "500"]
    command += ["--multi-ack-every", "100", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout
