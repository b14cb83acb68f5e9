"""Checker of a group's committed offsets: a register per partition that only commits change.

Every commit writes a unique value, so a committed offset identifies its commit. Times are those of
the client, at the request and at the reply. A commit without a reply may apply at any time after
its request. Violations:

- lost-commit: the offset read is older than an acknowledged commit (or missing);
- regression: the offset goes back to an older commit;
- fencing: a refused commit was applied, or one of an older generation replaced a newer one's.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from simulation.checkers.context import CheckerContext

Place = tuple[str, int]
NEVER = float("inf")


@dataclass(slots=True)
class Commit:
    """Attempt to commit an offset."""

    value: int
    number: int
    """Generation or epoch of the member."""
    asked_at: float
    answered_at: float = NEVER
    is_acknowledged: bool = False
    is_refused: bool = False


@dataclass(slots=True)
class OffsetsChecker:
    """Committed offsets of one group."""

    world: CheckerContext
    group: str
    commits: dict[Place, list[Commit]] = field(default_factory=dict)
    by_value: dict[int, Commit] = field(default_factory=dict)
    _values: int = 0

    def begin_commit(self, place: Place, number: int) -> Commit:
        """Registers a commit before it is sent; its value is the offset to commit."""
        self._values += 1
        commit = Commit(self._values, number, self.world.now())
        self.commits.setdefault(place, []).append(commit)
        self.by_value[commit.value] = commit
        return commit

    def acknowledged(self, commit: Commit) -> None:
        commit.is_acknowledged = True
        commit.answered_at = self.world.now()

    def refused(self, commit: Commit) -> None:
        commit.is_refused = True
        commit.answered_at = self.world.now()

    def read(self, place: Place, value: int, asked_at: float) -> None:
        """Checks the committed offset in a reply (-1: none)."""
        known = self.by_value.get(value)
        if known is None and value != -1:
            self._violate("invented", place, f"{value} was never committed")
            return
        if known is not None and known.is_refused:
            self._violate("fencing", place, f"{value} was applied, but refused")
            return
        for later in self._settled(place, asked_at):
            if known is None:
                self._violate("lost-commit", place, f"{later.value} is lost: nothing is committed")
            elif known is later:
                continue
            elif known.number < later.number:
                self._violate(
                    "fencing",
                    place,
                    f"{value} of generation {known.number} replaced {later.value} "
                    f"of generation {later.number}",
                )
            elif later.asked_at > known.answered_at:
                name = "lost-commit" if known.is_acknowledged else "regression"
                self._violate(name, place, f"{value} is read after {later.value} was acknowledged")

    def _settled(self, place: Place, asked_at: float) -> Iterable[Commit]:
        """Commits acknowledged before `asked_at`."""
        return [
            commit
            for commit in self.commits.get(place, ())
            if commit.is_acknowledged and commit.answered_at < asked_at
        ]

    def _violate(self, name: str, place: Place, text: str) -> None:
        self.world.violate(name, f"group {self.group}, {place[0]}-{place[1]}: {text}")
