"""Whose password is checked next: addresses take turns, and at each address the names given there.

A check takes milliseconds of a processor, on purpose, and anybody may ask for one. So an address
has one check at a time, and those that wait are called in turn: first by address, then by the name
they give, whether or not there is such a user. Whoever floods us therefore stands mostly behind
themselves. After a wrong password the address rests for `REST_FACTOR` times as long as the check
took, so that strangers do not keep a processor busy; but no longer than `PATIENCE_S` shared by all
who wait there, for some of them may only have the same address as a stranger.

Pure: waiters are whatever the caller can recognise, and time comes in from outside.

Bounds: `waiting_max` in all. The more of them are of one address and give one name, the sooner its
next one is turned away, so that there is always room for somebody else.
"""

from collections import OrderedDict
from collections.abc import Hashable
from ipaddress import IPv6Address, ip_address
from typing import Generic, TypeVar

REST_FACTOR = 3
PATIENCE_S = 1.0
NETWORK_BYTES = 8
"""Of an IPv6 address: what is left of it, one host may choose as it likes."""

T = TypeVar("T", bound=Hashable)


def place_of(address: str) -> str:
    """Where somebody is, as far as they cannot choose it themselves."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return found.packed[:NETWORK_BYTES].hex()


class _Line(Generic[T]):
    """Those who wait at one address, by the names they give."""

    __slots__ = ("count", "names")

    def __init__(self) -> None:
        self.names: OrderedDict[str, OrderedDict[T, None]] = OrderedDict()
        self.count = 0

    def of(self, name: str) -> int:
        return len(self.names.get(name, ()))

    def add(self, name: str, waiter: T) -> None:
        self.names.setdefault(name, OrderedDict())[waiter] = None
        self.count += 1

    def remove(self, name: str, waiter: T) -> None:
        del self.names[name][waiter]
        self.count -= 1
        if not self.names[name]:
            del self.names[name]

    def take(self) -> T:
        """The first one of the name whose turn it is."""
        name, waiters = next(iter(self.names.items()))
        waiter = next(iter(waiters))
        self.names.move_to_end(name)
        self.remove(name, waiter)
        return waiter


class PasswordCheckTurns(Generic[T]):
    """At most `at_once` have their turn at the same time, each at another address."""

    def __init__(self, at_once: int, waiting_max: int) -> None:
        self._at_once = at_once
        self._waiting_max = waiting_max
        # The address whose turn comes next is first.
        self._lines: OrderedDict[str, _Line[T]] = OrderedDict()
        self._busy: dict[str, None] = {}
        # Until when. Few, since each rests only a few times as long as it was busy.
        self._resting: dict[str, float] = {}
        self.waiting = 0

    def join(self, address: str, name: str, waiter: T) -> bool:
        """Waits from now on; False: too many do, and it is turned away."""
        line = self._lines.get(address) or _Line()
        if line.of(name) >= self._waiting_max - self.waiting - line.count:
            return False
        self._lines[address] = line
        line.add(name, waiter)
        self.waiting += 1
        return True

    def leave(self, address: str, name: str, waiter: T) -> None:
        """No longer waits, if it still does."""
        line = self._lines.get(address)
        if line is not None and waiter in line.names.get(name, ()):
            line.remove(name, waiter)
            self._left(address, line)

    def call(self, now_s: float) -> tuple[str, T] | None:
        """Who has their turn now, and where, until `finish`; None: nobody else may at present."""
        if len(self._busy) >= self._at_once:
            return None
        for address in self._lines:
            if address not in self._busy and self._resting.get(address, now_s) <= now_s:
                break
        else:
            return None
        line = self._lines[address]
        waiter = line.take()
        self._lines.move_to_end(address)
        self._left(address, line)
        self._resting.pop(address, None)
        self._busy[address] = None
        return address, waiter

    def finish(self, address: str, now_s: float, wasted_s: float = 0.0) -> None:
        """A turn is over; `wasted_s` is how long a wrong password took."""
        del self._busy[address]
        self._resting = {one: until for one, until in self._resting.items() if until > now_s}
        if wasted_s > 0:
            line = self._lines.get(address)
            patience_s = PATIENCE_S / (line.count if line is not None else 1)
            self._resting[address] = now_s + min(REST_FACTOR * wasted_s, patience_s)

    def rested_at(self) -> float | None:
        """When somebody may be called who now waits for no more than a rest; None: there is
        nobody, or a turn has to end first."""
        if len(self._busy) >= self._at_once:
            return None
        return min((at for one, at in self._resting.items() if one in self._lines), default=None)

    def _left(self, address: str, line: _Line[T]) -> None:
        self.waiting -= 1
        if not line.count:
            del self._lines[address]
