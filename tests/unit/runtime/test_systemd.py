"""`penstock.runtime.systemd`: notifications over a real datagram socket."""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest

from penstock.runtime.systemd import Systemd
from tests.run_with import run_with


def run(test: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(test())


class Listener:
    """Systemd's end of the socket."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.settimeout(10)

    def next(self) -> str:
        return self._socket.recv(4096).decode()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    one = Listener(str(tmp_path / "notify"))
    yield one
    one.close()


@run_with(run)
async def test_ready_and_stopping_are_reported(*, listener: Listener, tmp_path: Path) -> None:
    service = Systemd({"NOTIFY_SOCKET": str(tmp_path / "notify")})
    service.ready("Kafka on 127.0.0.1:9092")
    assert listener.next() == "READY=1\nSTATUS=Kafka on 127.0.0.1:9092"
    service.stopping()
    assert listener.next() == "STOPPING=1\nSTATUS=stopping"
    await service.close()


@run_with(run)
async def test_watchdog_is_pinged_until_the_end(*, listener: Listener, tmp_path: Path) -> None:
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000"}
    service = Systemd({**environment, "WATCHDOG_PID": str(os.getpid())})
    service.ready("")
    assert listener.next().startswith("READY=1")
    for _ in range(3):
        await asyncio.sleep(0.02)
        assert listener.next() == "WATCHDOG=1"
    service.stopping()
    await service.close()


@run_with(run)
async def test_abstract_socket_is_reached() -> None:
    name = f"penstock-{os.getpid()}"
    abstract = Listener("\0" + name)
    Systemd({"NOTIFY_SOCKET": "@" + name}).ready("x")
    assert abstract.next() == "READY=1\nSTATUS=x"
    abstract.close()


@run_with(run)
async def test_absent_service_changes_nothing(*, tmp_path: Path) -> None:
    for environment in ({}, {"NOTIFY_SOCKET": str(tmp_path / "gone"), "WATCHDOG_USEC": "nonsense"}):
        service = Systemd(environment)
        service.ready("")
        service.stopping()
        await service.close()
