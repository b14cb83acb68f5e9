"""Keeps a write that was checked a moment ago from landing after its transaction has ended.

A first write of a transaction to a partition is checked with the coordinator, which takes time; a
marker may be written meanwhile. So a guard is set before the question is asked, any marker for the
same producer and place breaks it, and whoever finds it broken does not write (KIP-890). Clients
with transactions v2 are safe by their epoch too; older ones only by this.
"""

from typing import TypeAlias

Place: TypeAlias = tuple[str, int, int]
"""Topic, partition and producer id."""


class Guard:
    """Intact until a marker is written to its place."""

    __slots__ = ("is_broken", "place")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.is_broken = False


class Guards:
    """The guards set on this node. As many as there are requests being checked."""

    def __init__(self) -> None:
        self._set: dict[Place, list[Guard]] = {}

    def __len__(self) -> int:
        return len(self._set)

    def set(self, place: Place) -> Guard:
        guard = Guard(place)
        self._set.setdefault(place, []).append(guard)
        return guard

    def lift(self, guard: Guard) -> None:
        """The write was made, or given up."""
        guards = self._set.get(guard.place)
        if guards is not None and guard in guards:
            guards.remove(guard)
            if not guards:
                del self._set[guard.place]

    def marked(self, place: Place) -> None:
        for guard in self._set.pop(place, ()):
            guard.is_broken = True
