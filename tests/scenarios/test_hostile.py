"""Hostile connections: memory stays bounded and a client that behaves is served all the while.

`PENSTOCK_HOSTILE` is how many there are (1,000 by default; a release takes 10,000),
`PENSTOCK_HOSTILE_SECONDS` how long they stay, `PENSTOCK_HOSTILE_NICE` how far their priority is
below the broker's (10 by default). Memory is asserted always. The client's p99 beside
its own before the attack is printed, and asserted at 10,000 only, where the machine is ours.
"""

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from bench import probe, proc
from tests.brokers import PenstockProcess
from tests.chaos.writers import create_topic
from tests.ports import free_port

COUNT = int(os.environ.get("PENSTOCK_HOSTILE", "1000"))
SECONDS = float(os.environ.get("PENSTOCK_HOSTILE_SECONDS", "10"))
FULL = 10_000
GROWTH_MIB_MAX = 256
P99_FACTOR_MAX = 5
BASELINE_REQUESTS = 5_000 if COUNT >= FULL else 500
ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.timeout(600 + COUNT // 10)]


@contextmanager
def guarded_broker(directory: Path) -> Iterator[tuple[PenstockProcess, int, int]]:
    """A broker with a plain and a TLS listener, and their ports."""
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(
        str(directory / "server.pem")
    )
    plain, tls = free_port(), free_port()
    sets = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{tls}",
        "ssl.keystore.location": directory / "server.pem",
    }
    process = PenstockProcess(directory / "data", sets)
    try:
        yield process, plain, tls
    finally:
        assert process.stop() == 0, process.log()


class Client:
    """One connection that writes one record at a time and notes how long each takes."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._connection = probe.connect(bootstrap)
        self._frame = probe.produce_frame(topic, bytes(100))
        self.latencies_s: list[float] = []

    def write(self) -> None:
        began = time.monotonic()
        self._connection.sendall(self._frame)
        (size,) = struct.unpack(">i", probe.receive(self._connection, 4))
        answer = probe.receive(self._connection, size)
        # The error code comes after correlation id, counts, name and index.
        (name_bytes,) = struct.unpack_from(">h", answer, 8)
        (code,) = struct.unpack_from(">h", answer, 10 + name_bytes + 8)
        assert code == 0, code
        self.latencies_s.append(time.monotonic() - began)

    def p99_ms(self) -> float:
        ranked = sorted(self.latencies_s)
        return 1000 * ranked[int(0.99 * (len(ranked) - 1))]

    def close(self) -> None:
        self._connection.close()


@contextmanager
def attackers(plain: int, tls: int, topic: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.scenarios.hostile", "--count", str(COUNT)]
    command += ["--plain", str(plain), "--tls", str(tls), "--topic", topic]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_hostile_connections_cost_little_and_delay_no_client(tmp_path: Path) -> None:
    with guarded_broker(tmp_path) as (broker, plain, tls):
        bootstrap = f"127.0.0.1:{plain}"
        create_topic(bootstrap, "good", 1)
        create_topic(bootstrap, "looked-into", 1, cleanup_policy="compact")
        client = Client(bootstrap, "good")
        for _ in range(BASELINE_REQUESTS):
            client.write()
        before_ms = client.p99_ms()
        client.latencies_s.clear()
        before_mib = proc.rss_mib(broker.pid)
        with proc.watched(broker.pid) as reading, attackers(plain, tls, "looked-into") as hostile:
            assert hostile.stdout is not None
            os.set_blocking(hostile.stdout.fileno(), False)
            deadline = time.monotonic() + 240 + COUNT / 25
            there_at = None
            while there_at is None or time.monotonic() < there_at + SECONDS:
                client.write()
                if time.monotonic() >= deadline:
                    raise TimeoutError("the attackers never got there")
                if there_at is None and "all are there" in (hostile.stdout.readline() or ""):
                    there_at = time.monotonic()
            during_ms = client.p99_ms()
            newcomer_s = _newcomer(bootstrap)
            os.set_blocking(hostile.stdout.fileno(), True)
            told, _ = hostile.communicate("", timeout=60)
        grown_mib = reading.rss_mib_max - before_mib
        client.close()
        print(
            f"\n{COUNT} hostile connections: memory grew by {grown_mib:.0f} MiB; p99 of "
            f"{len(client.latencies_s)} writes {during_ms:.1f} ms, before {before_ms:.1f} ms; a "
            f"new client was served in {1000 * newcomer_s:.0f} ms\n{told}"
        )
        assert broker.running, broker.log()
        assert grown_mib <= GROWTH_MIB_MAX
        assert "Traceback" not in broker.log(), broker.log()
        if COUNT >= FULL:
            assert during_ms <= P99_FACTOR_MAX * before_ms


def _newcomer(bootstrap: str) -> float:
    """Seconds that a client connecting in the middle of it waits for its first answer."""
    began = time.monotonic()
    with probe.connect(bootstrap) as connection:
        connection.sendall(probe.frame(18, 0, 1, b""))
        (size,) = struct.unpack(">i", probe.receive(connection, 4))
        probe.receive(connection, size)
        connection.shutdown(socket.SHUT_RDWR)
    return time.monotonic() - began
