"""Named deadlines of one group.

Invariant: `floor` is never later than the earliest deadline, and may be earlier. A deadline that
only moves later, as a session's does with every heartbeat, therefore costs one dict write; the
true minimum is searched for when the floor is reached.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    """Deadlines by name; setting one again moves it."""

    __slots__ = ("at", "floor")

    def __init__(self) -> None:
        self.at: dict[K, int] = {}
        self.floor: int | None = None

    def set(self, name: K, at_ms: int) -> None:
        self.at[name] = at_ms
        if self.floor is None or at_ms < self.floor:
            self.floor = at_ms

    def set_once(self, name: K, at_ms: int) -> None:
        if name not in self.at:
            self.set(name, at_ms)

    def cancel(self, name: K) -> None:
        self.at.pop(name, None)
        if not self.at:
            self.floor = None

    def clear(self) -> None:
        self.at.clear()
        self.floor = None

    def take_due(self, now_ms: int) -> list[K]:
        """Removes and returns the due names, earliest first; ties in the order of setting."""
        if self.floor is None or self.floor > now_ms:
            return []
        due = sorted((at, n) for n, at in enumerate(self.at.values()) if at <= now_ms)
        names = list(self.at)
        taken = [names[n] for _, n in due]
        for name in taken:
            del self.at[name]
        self.floor = min(self.at.values(), default=None)
        return taken
