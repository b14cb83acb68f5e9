"""Limits on replies in memory: behind a reply that is not ready, and for peers that do not read.

A connection reads no more requests while `PARKED_BYTES_MAX` of finished replies wait for an earlier
one. Large replies of all connections are limited to `UNREAD_BYTES_MAX`, those of one holder to
`HOLDER_BYTES_MAX`. A holder is a user, or the address of unauthenticated connections. At a limit,
connections that have read nothing for `GRACE_SECONDS` are closed: those of the same holder or, at
the total limit, of any holder. If that is not enough, the connection that needs memory is closed.
File slices are not counted, since they are not in memory. Small replies are not counted either,
since a connection has few of them.
"""

import logging
from collections.abc import Iterable
from typing import Protocol

from penstock.base.fair_pool import FairPool
from penstock.base.ports import Buffer, Slice
from penstock.broker.server.send_queue import BUFFERS
from penstock.security.acl_types import ANONYMOUS

log = logging.getLogger("penstock.server")

PARKED_BYTES_MAX = 1 << 20
LARGE_BYTES = 64 * 1024
UNREAD_BYTES_MAX = 512 << 20
HOLDER_BYTES_MAX = 256 << 20
"""Enough for thirty consumers of one user that catch up at once, `fetch.max.bytes` each."""
GRACE_SECONDS = 5.0


class ReplySender(Protocol):
    """Connection, as far as the limits need it."""

    peer: str
    principal: str

    def is_unread(self, now: float, seconds: float) -> bool:
        """True if the peer has read nothing of its pending replies for this time."""
        ...

    def abort(self) -> None: ...


class ReplyLimits:
    """Large unsent replies of a node, by connection."""

    def __init__(self) -> None:
        self.shares = FairPool(UNREAD_BYTES_MAX, HOLDER_BYTES_MAX)
        self._held: dict[ReplySender, tuple[str, int]] = {}
        """Holder and bytes by connection, oldest first."""

    def keep(self, sender: ReplySender, size: int, now: float) -> bool:
        """Counts a reply; False if it exceeds the limits and closing others does not help."""
        if size < LARGE_BYTES:
            return True
        holder, held = self._held.get(sender) or (_holder_of(sender), 0)
        if not self.shares.take(holder, size):
            is_own = self.shares.held(holder) + size > self.shares.holder_max
            for other, (whose, _) in list(self._held.items()):
                is_meant = whose == holder or not is_own
                if is_meant and other is not sender and other.is_unread(now, GRACE_SECONDS):
                    log.info(
                        "closing %s: it does not read its replies, and others need the memory",
                        other.peer,
                    )
                    self.release(other)
                    other.abort()
            if not self.shares.take(holder, size):
                return False
        self._held[sender] = holder, held + size
        return True

    def release(self, sender: ReplySender) -> None:
        """Releases the bytes of a connection: all replies were sent, or it is closed."""
        found = self._held.pop(sender, None)
        if found is not None:
            self.shares.give(*found)


def _holder_of(sender: ReplySender) -> str:
    return sender.peer if sender.principal == ANONYMOUS else sender.principal


def bytes_of(frame: Iterable[Buffer | Slice]) -> int:
    """Returns the bytes of a reply in memory."""
    return sum(len(part) for part in frame if isinstance(part, BUFFERS))
