"""Guards that keep a verified write from landing after its transaction has ended.

A first write of a transaction to a partition is verified by the coordinator, which takes time; a
marker may be written meanwhile. So a guard is set before the question is sent, the marker breaks
it, and a write with a broken guard is refused (KIP-890).

With transactions v2 the marker that ends a transaction has a newer epoch than its writes, and one
of the same epoch or an older one ends an earlier transaction: the producer may continue while that
marker is still in flight to another node, and it must not break the next transaction. Before v2
they have the same epoch, and any marker breaks the guard.
"""

from typing import Final, TypeAlias

Place: TypeAlias = tuple[str, int, int]
"""Topic, partition and producer id."""

ANY_EPOCH: Final = -1


class Guard:
    """Intact until a marker of a newer epoch is written to its place."""

    __slots__ = ("epoch", "is_broken", "place")

    def __init__(self, place: Place, epoch: int) -> None:
        self.place = place
        self.epoch = epoch
        self.is_broken = False


class Guards:
    """Guards set on this node: as many as there are requests being verified."""

    def __init__(self) -> None:
        self._set: dict[Place, list[Guard]] = {}

    def __len__(self) -> int:
        return len(self._set)

    def set(self, place: Place, epoch: int = ANY_EPOCH) -> Guard:
        """`epoch`: the write's, with transactions v2."""
        guard = Guard(place, epoch)
        self._set.setdefault(place, []).append(guard)
        return guard

    def lift(self, guard: Guard) -> None:
        """Removes the guard: the write was made, or given up."""
        guards = self._set.get(guard.place)
        if guards is not None and guard in guards:
            guards.remove(guard)
            if not guards:
                del self._set[guard.place]

    def marked(self, place: Place, epoch: int) -> None:
        for guard in self._set.get(place, ()):
            if epoch > guard.epoch:
                guard.is_broken = True
