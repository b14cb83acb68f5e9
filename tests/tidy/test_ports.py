"""Ports of servers in tests: none that a connection could be given, none that is taken."""

import itertools
import socket

import pytest

from tests import ports


def test_free_ports_are_unique_and_outside_the_ephemeral_range() -> None:
    found = [ports.free_port() for _ in range(50)]
    assert len(set(found)) == len(found)
    assert max(found) < int(ports.PICKED.read_text().split()[0])


def test_taken_port_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", ports.free_port())) as taken:
        number = taken.getsockname()[1]
        free = ports.free_port()
        monkeypatch.setattr(ports, "_ports", itertools.chain([number, free]))
        assert ports.free_port() == free
