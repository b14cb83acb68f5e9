"""Memory budget for the receive buffers of all connections.

A connection reserves memory before its buffer grows and releases it when the buffer shrinks or the
connection closes. If the budget is used up, the connection stops reading and waits, first come,
first served.

One connection can always proceed: when all other holders wait, the last one gets its reservation
even above the budget, because only a finished request releases memory. So the budget is exceeded by
at most one request. The sweep (`listener`) closes a holder that does not finish, so waiting always
ends.

Unauthenticated connections have a separate, smaller budget, `UNAUTHENTICATED_BYTES_MAX`, without
waiting: a connection that does not fit is closed. So they cannot exhaust the budget of
authenticated ones.
"""

from collections import OrderedDict
from collections.abc import Callable

from penstock.broker.server.reply_limits import ReplyLimits

NO_LIMIT = 2**63 - 1
UNAUTHENTICATED_BYTES_MAX = 32 << 20


class ReceiveBudget:
    """Counts bytes by holder against a maximum (-1: none) and wakes waiters in order."""

    __slots__ = (
        "_held",
        "_unauthenticated",
        "_waiting",
        "bytes_max",
        "replies",
        "unauthenticated_bytes",
        "used",
    )

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max if bytes_max >= 0 else NO_LIMIT
        self.used = 0
        # A waiting connection is a holder, too, perhaps of 0 bytes.
        self._held: dict[object, int] = {}
        self._waiting: OrderedDict[object, tuple[int, Callable[[], None]]] = OrderedDict()
        self._unauthenticated: dict[object, int] = {}
        self.unauthenticated_bytes = 0
        """Bytes of unauthenticated connections."""
        self.replies = ReplyLimits()
        """Limits on large replies."""

    def hold_unauthenticated(self, holder: object, count: int) -> bool:
        """Sets the bytes of an unauthenticated connection; False if they exceed the budget."""
        held = self.unauthenticated_bytes + count - self._unauthenticated.get(holder, 0)
        if held > UNAUTHENTICATED_BYTES_MAX:
            return False
        self._unauthenticated[holder] = count
        self.unauthenticated_bytes = held
        return True

    def should_release(self, holder: object) -> bool:
        """True if this connection should release unused memory as soon as possible."""
        return bool(self._waiting) or holder in self._unauthenticated

    @property
    def is_contended(self) -> bool:
        return bool(self._waiting)

    def hold(self, holder: object, count: int) -> bool:
        """Sets the bytes of a connection; False if they exceed the budget: call `wait` then."""
        before = self._held.get(holder)
        used = self.used + count - (before or 0)
        others = len(self._held) - (before is not None)
        if (used > self.bytes_max or self._waiting) and others > len(self._waiting):
            return False
        self._held[holder] = count
        self.used = used
        return True

    def wait(self, holder: object, count: int, wake: Callable[[], None]) -> None:
        """Calls `wake` once the bytes are reserved. Only after `hold` has returned False."""
        self._held.setdefault(holder, 0)
        self._waiting[holder] = (count, wake)

    def release(self, holder: object) -> None:
        """Releases all bytes of a connection and ends its wait."""
        self.unauthenticated_bytes -= self._unauthenticated.pop(holder, 0)
        self.used -= self._held.pop(holder, 0)
        self._waiting.pop(holder, None)
        while self._waiting:
            first, (count, wake) = next(iter(self._waiting.items()))
            used = self.used + count - self._held[first]
            if used > self.bytes_max and len(self._held) > len(self._waiting):
                return
            del self._waiting[first]
            self._held[first] = count
            self.used = used
            wake()
