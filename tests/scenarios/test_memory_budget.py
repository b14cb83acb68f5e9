"""More requests under way than there is memory for, on a real broker and its real event loop."""

import contextlib
import json
import socket
import struct
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import probe
from tests.brokers import QUICK, PenstockProcess

PEERS = 40
FRAME_BYTES = 200_000
BUDGET_BYTES = 1 << 20
OUTSIDERS = 1_500
API_VERSIONS, SASL_AUTHENTICATE = 18, 36


@contextlib.contextmanager
def broker(directory: Path, **sets: object) -> Iterator[PenstockProcess]:
    named = {name.replace("_", "."): value for name, value in sets.items()}
    process = PenstockProcess(directory / "data", {**QUICK, **named})
    try:
        yield process
    finally:
        process.stop()


def port_of(process: PenstockProcess) -> int:
    return int(process.bootstrap.rpartition(":")[2])


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def resident_mib(process: PenstockProcess) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def test_requests_over_the_memory_budget_wait_and_the_broker_survives(tmp_path: Path) -> None:
    """Reading was stopped from within a read, which ended the process."""
    # A valid request: bytes after its body are ignored.
    whole = probe.frame(API_VERSIONS, 0, 7, bytes(FRAME_BYTES))
    half = len(whole) // 2
    with broker(tmp_path, queued_max_request_bytes=BUDGET_BYTES) as process:
        port = port_of(process)
        with contextlib.ExitStack() as held:
            peers = [held.enter_context(connect(port)) for _ in range(PEERS)]
            for peer in peers:
                peer.sendall(whole[:half])
            time.sleep(0.5)
            for peer in peers:
                peer.sendall(whole[half:])
            for peer in peers:
                length = struct.unpack(">i", peer.recv(4, socket.MSG_WAITALL))[0]
                correlation_id = struct.unpack(">i", peer.recv(4, socket.MSG_WAITALL))[0]
                assert (length > 0, correlation_id) == (True, 7)


def test_unauthenticated_connections_take_little_memory(tmp_path: Path) -> None:
    with broker(tmp_path, listeners="SASL_PLAINTEXT://127.0.0.1:0") as process:
        port = port_of(process)
        before = resident_mib(process)
        frame = probe.frame(SASL_AUTHENTICATE, 0, 1, bytes(60_000))
        with contextlib.ExitStack() as held:
            for _ in range(OUTSIDERS):
                peer = held.enter_context(connect(port))
                with contextlib.suppress(OSError):
                    peer.sendall(frame[:-1])
            time.sleep(1)
            grown = resident_mib(process) - before
            assert grown < 32 + OUTSIDERS * 16 / 1024 + 8, "all of them would hold 90 MiB and more"
            with connect(port) as honest:
                honest.sendall(probe.frame(API_VERSIONS, 0, 9, b""))
                assert honest.recv(4, socket.MSG_WAITALL)


@pytest.mark.parametrize("size", [64 * 1024 + 1, 100 << 20])
def test_unauthenticated_large_frame_closes_the_connection(tmp_path: Path, size: int) -> None:
    with (
        broker(tmp_path, listeners="SASL_PLAINTEXT://127.0.0.1:0") as process,
        connect(port_of(process)) as peer,
    ):
        peer.sendall(struct.pack(">i", size) + bytes(100))
        with contextlib.suppress(ConnectionResetError):
            assert peer.recv(1) == b""


def test_unread_responses_take_little_memory(tmp_path: Path) -> None:
    """It was 15 MB for each poll and 24 for each stream."""
    with broker(tmp_path, num_partitions=16) as process, contextlib.ExitStack() as held:
        message = json.dumps({"payload": "x" * 900_000})
        for _ in range(40):
            urllib.request.urlopen(f"{process.http}/topics/t/messages", message.encode()).close()
        before = resident_mib(process)
        for route in ("poll", "stream"):
            for _ in range(60):
                peer = held.enter_context(socket.socket())
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                peer.connect(("127.0.0.1", int(process.http.rpartition(":")[2])))
                path = f"/topics/t/{route}?group=g&mode=log"
                peer.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
                assert peer.recv(9) == b"HTTP/1.1 "
        with urllib.request.urlopen(f"{process.http}/healthz") as answer:
            assert answer.status == 200
        assert resident_mib(process) - before < 200, "all of them would hold 1.5 GB and more"
