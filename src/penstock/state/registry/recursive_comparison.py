"""Comparison of two schemas that may refer to themselves.

A pair that is compared again within its own comparison is assumed compatible. If the assumption
turns out wrong, the comparison is repeated with that knowledge.
"""

from collections.abc import Callable

from penstock.state.registry.limits import StepBudget

Pair = tuple[int, int]
"""Identities of two types."""
Differences = dict[Pair, list[str]]


class RecursiveComparison:
    """One pass over two schemas."""

    def __init__(self, budget: StepBudget, known_bad: Differences) -> None:
        self.budget = budget
        self._known_bad = known_bad
        self._found = dict(known_bad)
        self._is_open: set[Pair] = set()
        self._assumed: list[Pair] = []

    def wrongly_assumed(self) -> Differences:
        """Pairs assumed compatible during their own comparison that turned out not to be."""
        return {
            pair: self._found[pair]
            for pair in self._assumed
            if self._found[pair] and pair not in self._known_bad
        }

    def compare_once(self, pair: Pair, differences: Callable[[], list[str]]) -> list[str]:
        """Returns the differences of a pair, which are computed at its first comparison."""
        if pair in self._is_open:
            self._assumed.append(pair)
            return []
        found = self._found.get(pair)
        if found is None:
            self.budget.spend()
            self._is_open.add(pair)
            found = self._found[pair] = differences()
            self._is_open.discard(pair)
        return found


def compare_until_consistent(
    compare: Callable[[Differences], tuple[list[str], RecursiveComparison]],
) -> list[str]:
    """Repeats a pass until no pair was wrongly assumed compatible; returns its differences."""
    known_bad: Differences = {}
    while True:
        found, comparison = compare(known_bad)
        wrongly = comparison.wrongly_assumed()
        if not wrongly:
            return found
        known_bad |= wrongly
