"""One memory budget for what all connections together hold in receive buffers.

A connection asks before its buffer grows and gives back when it shrinks or closes. One that asks
in vain stops reading and waits its turn, first come, first served.

There is always somebody who may go on: when every other holder waits, the last one is given what
it asks for, budget or not, because only a request that is finished gives anything back. So the
budget is exceeded by at most one request. A holder that does not finish is closed by the sweep
(`listener.py`), so waiting always ends.

Those who have not said who they are yet have a smaller one of their own, `STRANGERS_BYTES`, and
nobody waits there: whoever it is too small for is not let in. So they take nothing from others.
"""

from collections import OrderedDict
from collections.abc import Callable

from penstock.broker.server.reply_limits import ReplyLimits

NO_LIMIT = 2**63 - 1
STRANGERS_BYTES = 32 << 20


class ReceiveBudget:
    """Counts bytes by holder against a maximum (-1: none) and wakes waiters in order."""

    __slots__ = ("_held", "_lent", "_waiting", "bytes_max", "lent", "unsent", "used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max if bytes_max >= 0 else NO_LIMIT
        self.used = 0
        # Who waits is a holder, too, if only of nothing.
        self._held: dict[object, int] = {}
        self._waiting: OrderedDict[object, tuple[int, Callable[[], None]]] = OrderedDict()
        self._lent: dict[object, int] = {}
        self.lent = 0
        """What strangers hold."""
        self.unsent = ReplyLimits()
        """Memory that large replies hold."""

    def lend(self, who: object, count: int) -> bool:
        """Makes `count` what `who`, a stranger, holds. False: there is not enough for it."""
        lent = self.lent + count - self._lent.get(who, 0)
        if lent > STRANGERS_BYTES:
            return False
        self._lent[who] = count
        self.lent = lent
        return True

    def wants_back(self, who: object) -> bool:
        """Whether what `who` holds should be given back as soon as it is not needed."""
        return bool(self._waiting) or who in self._lent

    @property
    def is_contended(self) -> bool:
        return bool(self._waiting)

    def hold(self, who: object, count: int) -> bool:
        """Makes `count` what `who` holds. False: there is not enough, `wait` for it."""
        before = self._held.get(who)
        used = self.used + count - (before or 0)
        others = len(self._held) - (before is not None)
        if (used > self.bytes_max or self._waiting) and others > len(self._waiting):
            return False
        self._held[who] = count
        self.used = used
        return True

    def wait(self, who: object, count: int, wake: Callable[[], None]) -> None:
        """Calls `wake` once `who` holds `count`. Only after `hold` has refused it."""
        self._held.setdefault(who, 0)
        self._waiting[who] = (count, wake)

    def release(self, who: object) -> None:
        """Gives back all that `who` holds; it waits for nothing any more."""
        self.lent -= self._lent.pop(who, 0)
        self.used -= self._held.pop(who, 0)
        self._waiting.pop(who, None)
        while self._waiting:
            first, (count, wake) = next(iter(self._waiting.items()))
            used = self.used + count - self._held[first]
            if used > self.bytes_max and len(self._held) > len(self._waiting):
                return
            del self._waiting[first]
            self._held[first] = count
            self.used = used
            wake()
