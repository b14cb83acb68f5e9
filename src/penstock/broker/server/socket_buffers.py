"""How much the kernel keeps for each connection on its way in and out, and how it sends it.

Buffers are set on a listening socket, from which those that it accepts have them. They are the
system's by default, which grow with the connection: a fixed one bounds what a consumer far away is
sent in each round trip, and has one on the same machine wait more often (ADR 30).
"""

import contextlib
from dataclasses import dataclass
from typing import Protocol

SOL_SOCKET = 1
SO_SNDBUF = 7
SO_RCVBUF = 8
IPPROTO_TCP = 6
TCP_CONGESTION = 13
UNPACED = b"reno"
"""Every Linux has it, whatever it uses by default, and lets everybody choose it."""


class SocketBuffers(Protocol):
    """What is asked of a socket."""

    def setsockopt(self, level: int, option: int, value: int | bytes, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Buffers:
    """Bytes; not positive: what the system chooses, and changes as it goes."""

    send_bytes: int = -1
    receive_bytes: int = -1

    def give_to(self, listening: SocketBuffers) -> None:
        if self.send_bytes > 0:
            listening.setsockopt(SOL_SOCKET, SO_SNDBUF, self.send_bytes)
        if self.receive_bytes > 0:
            listening.setsockopt(SOL_SOCKET, SO_RCVBUF, self.receive_bytes)


SYSTEMS_OWN = Buffers()


def spare_pacing(accepted: SocketBuffers) -> None:
    """For a peer on the same machine: there is no network between us that could be congested.

    Where the system's default is BBR, the kernel would spread packets over time, with a timer and
    a wake-up of the reader for each: that takes more than sending them.
    """
    with contextlib.suppress(OSError):
        accepted.setsockopt(IPPROTO_TCP, TCP_CONGESTION, UNPACED)
