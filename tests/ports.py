"""Ports for servers that a test restarts, or announces before they listen.

They lie below the ephemeral range: no other process gets one by chance while its server is down,
and a client that keeps connecting there never connects to itself.
"""

import itertools
import os
import socket
from collections.abc import Iterator
from pathlib import Path

PICKED = Path("/proc/sys/net/ipv4/ip_local_port_range")
COUNT = 12_000
PER_PROCESS = 300
"""Several processes run tests at the same time: each begins at another port."""


def _candidates() -> Iterator[int]:
    first = int(PICKED.read_text().split()[0])
    if first < COUNT + 1024:
        yield from itertools.repeat(0)  # The system picks from all ports.
    for number in itertools.count(os.getpid() * PER_PROCESS):
        yield first - 1 - number % COUNT


_ports = _candidates()


def free_port(host: str = "127.0.0.1") -> int:
    """A port that is not in use, and that this process has not been given lately."""
    for port in _ports:
        with socket.socket() as listener:
            try:
                listener.bind((host, port))
            except OSError:
                continue
            found: int = listener.getsockname()[1]
            return found
    raise AssertionError("there is always a next one")
