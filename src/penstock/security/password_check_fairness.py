"""Fair scheduling of password checks: round robin over addresses, then over user names.

A check takes milliseconds of CPU time, on purpose, and any client may cause one. So an address has
one check at a time, and waiting checks are scheduled round robin: first by address, then by the
given user name, whether or not the user exists. A client that floods the node therefore mostly
delays itself. After a wrong password the address pauses for `REST_FACTOR` times the duration of
the check, so that attackers cannot keep a CPU busy. The pause is at most `PATIENCE_S` divided by
the number of checks waiting there, since legitimate clients may share an attacker's address.

Pure: waiters are any hashable values, and the time is a parameter.

Bounds: `waiting_max` checks in all. The more of them share an address and a name, the sooner its
next one is refused, so that other clients can always wait.
"""

from collections import OrderedDict
from collections.abc import Hashable
from ipaddress import IPv6Address, ip_address
from typing import Generic, TypeVar

REST_FACTOR = 3
PATIENCE_S = 1.0
NETWORK_BYTES = 8
"""Network part of an IPv6 address: a host may choose the rest freely."""

T = TypeVar("T", bound=Hashable)


def place_of(address: str) -> str:
    """Part of an address that a client cannot choose itself."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return found.packed[:NETWORK_BYTES].hex()


class _AddressQueue(Generic[T]):
    """Checks waiting at one address, by user name."""

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
        """Removes and returns the first check of the name whose turn it is."""
        name, waiters = next(iter(self.names.items()))
        waiter = next(iter(waiters))
        self.names.move_to_end(name)
        self.remove(name, waiter)
        return waiter


class PasswordCheckQueue(Generic[T]):
    """Scheduler that runs at most `at_once` checks at the same time, each of another address."""

    def __init__(self, at_once: int, waiting_max: int) -> None:
        self._at_once = at_once
        self._waiting_max = waiting_max
        # The next address is first.
        self._queues: OrderedDict[str, _AddressQueue[T]] = OrderedDict()
        self._busy: dict[str, None] = {}
        # End times. Few, since each pause takes only a few times as long as the check.
        self._resting: dict[str, float] = {}
        self.waiting = 0

    def join(self, address: str, name: str, waiter: T) -> bool:
        """Queues a check; False if too many are waiting and it is refused."""
        queue = self._queues.get(address) or _AddressQueue()
        if queue.of(name) >= self._waiting_max - self.waiting - queue.count:
            return False
        self._queues[address] = queue
        queue.add(name, waiter)
        self.waiting += 1
        return True

    def leave(self, address: str, name: str, waiter: T) -> None:
        """Removes a check from the queue, if it still waits."""
        queue = self._queues.get(address)
        if queue is not None and waiter in queue.names.get(name, ()):
            queue.remove(name, waiter)
            self._left(address, queue)

    def call(self, now_s: float) -> tuple[str, T] | None:
        """Starts the next check and returns its address and waiter; None if none may start now."""
        if len(self._busy) >= self._at_once:
            return None
        for address in self._queues:
            if address not in self._busy and self._resting.get(address, now_s) <= now_s:
                break
        else:
            return None
        queue = self._queues[address]
        waiter = queue.take()
        self._queues.move_to_end(address)
        self._left(address, queue)
        self._resting.pop(address, None)
        self._busy[address] = None
        return address, waiter

    def finish(self, address: str, now_s: float, wasted_s: float = 0.0) -> None:
        """Ends a check; `wasted_s` is the duration of one with a wrong password."""
        del self._busy[address]
        self._resting = {one: until for one, until in self._resting.items() if until > now_s}
        if wasted_s > 0:
            queue = self._queues.get(address)
            patience_s = PATIENCE_S / (queue.count if queue is not None else 1)
            self._resting[address] = now_s + min(REST_FACTOR * wasted_s, patience_s)

    def rested_at(self) -> float | None:
        """Time at which a check may start that now waits only for a pause.

        None if there is none, or if a running check must end first.
        """
        if len(self._busy) >= self._at_once:
            return None
        return min((at for one, at in self._resting.items() if one in self._queues), default=None)

    def _left(self, address: str, queue: _AddressQueue[T]) -> None:
        self.waiting -= 1
        if not queue.count:
            del self._queues[address]
