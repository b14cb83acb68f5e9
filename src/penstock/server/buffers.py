"""How much the kernel keeps for each connection, on its way in and out.

Set on a listening socket, from which those that it accepts have it. A small send buffer is what
makes a fetch cheap for a consumer on the same machine: with a large one the sender is always
ahead, and pays for waking its reader with every packet; with one of a few packets the reader is
awake, and the next is sent while it copies (measured: half of the processor time, ADR 24). Far
away it is what bounds a consumer: at most one buffer is sent for each round trip.
"""

from dataclasses import dataclass
from typing import Protocol

SOL_SOCKET = 1
SO_SNDBUF = 7
SO_RCVBUF = 8


class Listening(Protocol):
    """What is asked of a socket."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Buffers:
    """Bytes; not positive: what the system chooses, and changes as it goes."""

    send_bytes: int = -1
    receive_bytes: int = -1

    def give_to(self, listening: Listening) -> None:
        if self.send_bytes > 0:
            listening.setsockopt(SOL_SOCKET, SO_SNDBUF, self.send_bytes)
        if self.receive_bytes > 0:
            listening.setsockopt(SOL_SOCKET, SO_RCVBUF, self.receive_bytes)


SYSTEMS_OWN = Buffers()
