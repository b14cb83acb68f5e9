"""Sizes of the kernel's socket buffers, and pacing of sent packets.

Sizes are set on a listening socket, whose accepted sockets inherit them. By default the system
sizes them, and they grow with the connection. A fixed size limits the bytes per round trip to a
remote consumer, and makes a local one wait more often (ADR 30).
"""

import contextlib
from dataclasses import dataclass
from typing import Protocol

SOL_SOCKET = 1
SO_SNDBUF = 7
SO_RCVBUF = 8
IPPROTO_TCP = 6
TCP_CONGESTION = 13
CONGESTION_WITHOUT_PACING = b"reno"
"""Congestion control without pacing; every Linux has it and lets any process choose it."""


class SocketOptions(Protocol):
    """Methods of a socket that this module needs."""

    def setsockopt(self, level: int, option: int, value: int | bytes, /) -> None: ...


@dataclass(frozen=True, slots=True)
class SocketBufferSizes:
    """Sizes in bytes; not positive: the system chooses and adapts them."""

    send_bytes: int = -1
    receive_bytes: int = -1

    def apply_to(self, listening: SocketOptions) -> None:
        if self.send_bytes > 0:
            listening.setsockopt(SOL_SOCKET, SO_SNDBUF, self.send_bytes)
        if self.receive_bytes > 0:
            listening.setsockopt(SOL_SOCKET, SO_RCVBUF, self.receive_bytes)


SYSTEM_DEFAULT = SocketBufferSizes()


def disable_pacing(accepted: SocketOptions) -> None:
    """Disables pacing for a peer on the same machine, where no network can be congested.

    If the system's default is BBR, the kernel spreads packets over time, with a timer and a wake-up
    of the reader for each, which costs more than sending them.
    """
    with contextlib.suppress(OSError):
        accepted.setsockopt(IPPROTO_TCP, TCP_CONGESTION, CONGESTION_WITHOUT_PACING)
