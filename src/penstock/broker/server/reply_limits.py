"""Limits on replies in memory: behind one that is not ready, and for peers that do not read.

A connection whose finished replies wait for an earlier one takes no more requests from
`PARKED_BYTES_MAX` on. Large replies of all connections have `UNREAD_BYTES_MAX` together, those of
one user, or one address that nobody has logged in from, `HOLDER_BYTES_MAX`. Where there is no room,
connections that have taken nothing for `GRACE_SECONDS` are closed, those of the same holder or, if
all of it is in use, of any holder; if that is not enough, the one that asked is. Stretches of
files are not counted: they are not in memory. Nor are small replies: a connection has few of them.
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
"""Thirty consumers of one user that all catch up at once, `fetch.max.bytes` each, are within it."""
GRACE_SECONDS = 5.0


class ReplySender(Protocol):
    """A connection, as far as it matters here."""

    peer: str
    principal: str

    def is_unread(self, now: float, seconds: float) -> bool:
        """Its peer has taken nothing of what waits for it for so long."""
        ...

    def abort(self) -> None: ...


class ReplyLimits:
    """Large replies of a node that have not left, by connection."""

    def __init__(self) -> None:
        self.shares = FairPool(UNREAD_BYTES_MAX, HOLDER_BYTES_MAX)
        self._held: dict[ReplySender, tuple[str, int]] = {}
        """The longest first."""

    def keep(self, sender: ReplySender, size: int, now: float) -> bool:
        """False: there is no room, nor can any be made."""
        if size < LARGE_BYTES:
            return True
        holder, held = self._held.get(sender) or (_holder_of(sender), 0)
        if not self.shares.take(holder, size):
            is_own = self.shares.held(holder) + size > self.shares.holder_max
            for other, (whose, _) in list(self._held.items()):
                is_meant = whose == holder or not is_own
                if is_meant and other is not sender and other.is_unread(now, GRACE_SECONDS):
                    log.info("closing %s: it does not read, and others need the room", other.peer)
                    self.release(other)
                    other.abort()
            if not self.shares.take(holder, size):
                return False
        self._held[sender] = holder, held + size
        return True

    def release(self, sender: ReplySender) -> None:
        """All of its replies have left, or it has gone."""
        found = self._held.pop(sender, None)
        if found is not None:
            self.shares.give(*found)


def _holder_of(sender: ReplySender) -> str:
    return sender.peer if sender.principal == ANONYMOUS else sender.principal


def bytes_of(frame: Iterable[Buffer | Slice]) -> int:
    """Bytes of memory that a reply takes."""
    return sum(len(part) for part in frame if isinstance(part, BUFFERS))
