"""One memory budget for what all connections together hold in receive buffers.

A connection asks before it grows its buffer and gives back when it shrinks or closes. One that
asks in vain stops reading and waits its turn; a peer that then never finishes its frame is closed
by the sweep (`listener.py`), so waiting always ends.
"""

from collections import OrderedDict
from collections.abc import Callable


class Budget:
    """Counts bytes against a maximum and wakes waiters in order."""

    __slots__ = ("_waiting", "bytes_max", "used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self._waiting: OrderedDict[object, Callable[[], None]] = OrderedDict()

    @property
    def is_contended(self) -> bool:
        return bool(self._waiting)

    def take(self, count: int) -> bool:
        if self.used + count > self.bytes_max and self.used:
            return False
        self.used += count
        return True

    def give(self, count: int) -> None:
        self.used -= count
        assert self.used >= 0, "more given back than taken"
        # One waiter for each give: it takes its share, and its own give wakes the next.
        if self._waiting:
            _, wake = self._waiting.popitem(last=False)
            wake()

    def wait(self, who: object, wake: Callable[[], None]) -> None:
        self._waiting[who] = wake

    def forget(self, who: object) -> None:
        self._waiting.pop(who, None)
