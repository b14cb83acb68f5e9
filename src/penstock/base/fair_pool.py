"""Bounded pool with a limit in total and one per holder (ADR 36).

A holder is a principal or an address. One holder cannot exhaust the pool, because `holder_max` is a
part of `total_max`. Permissions are checked before anything is taken. Nothing waits here: a refused
holder retries, or its caller delays it.
"""

from collections import Counter


class FairPool:
    """Counts of taken units per holder; pure."""

    __slots__ = ("_held", "holder_max", "taken", "total_max")

    def __init__(self, total_max: int, holder_max: int) -> None:
        assert 0 < holder_max <= total_max
        self.total_max = total_max
        self.holder_max = holder_max
        self.taken = 0
        self._held: Counter[str] = Counter()

    def take(self, holder: str, amount: int = 1) -> bool:
        """Takes `amount`; False, with nothing taken, if that exceeds what is left for the holder.

        A holder that holds nothing yet gets any amount while anything is left, so that a large
        amount is not refused forever.
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
        """Returns `amount` to the pool."""
        left = self._held[holder] - amount
        assert left >= 0, f"{holder} returns more than it took"
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
