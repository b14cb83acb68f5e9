"""A bounded pool that many draw from: so much in all, and so much for each of them (ADR 36).

Whoever takes is known by a name, a principal's or an address's, and nobody can take what others
need: `holder_max` is a part of `total_max`. Rights are asked before anything is taken. Nothing
waits here: who gets nothing is refused and comes again, or is put off by whoever asked.
"""

from collections import Counter


class FairPool:
    """Counts what is taken, by holder; pure."""

    __slots__ = ("_held", "holder_max", "taken", "total_max")

    def __init__(self, total_max: int, holder_max: int) -> None:
        assert 0 < holder_max <= total_max
        self.total_max = total_max
        self.holder_max = holder_max
        self.taken = 0
        self._held: Counter[str] = Counter()

    def take(self, holder: str, amount: int = 1) -> bool:
        """False, and nothing is taken, where there is not so much left for this holder.

        One holder that holds nothing yet gets what it asks for as long as anything is left, so
        that nothing is too large for ever.
        """
        held = self._held[holder]
        fits = self.taken + amount <= self.total_max and held + amount <= self.holder_max
        if not fits and (held or self.taken >= self.total_max):
            if not held:
                del self._held[holder]
            return False
        self._held[holder] = held + amount
        self.taken += amount
        return True

    def give(self, holder: str, amount: int = 1) -> None:
        """Gives back what was taken."""
        left = self._held[holder] - amount
        assert left >= 0, f"{holder} gives back more than it took"
        self.taken -= amount
        if left:
            self._held[holder] = left
        else:
            del self._held[holder]

    def held(self, holder: str) -> int:
        return self._held.get(holder, 0)

    def __len__(self) -> int:
        """Number of holders that hold something."""
        return len(self._held)
