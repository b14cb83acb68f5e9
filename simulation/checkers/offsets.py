"""A group's committed positions: a register for each partition that only commits may change.

Every commit writes a number that no other commit writes, so a position that is read names the
commit it comes from. Times are those of the client: when it asked, and when it was answered. A
commit without an answer may count at any time after it was asked. Named promises:

- lost-commit: an acknowledged commit came after the one that is read (or after none);
- regression: a position goes back to an older commit's;
- fencing: a commit that was refused counts, or one of an older generation counts over a newer's.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from simulation.checkers.witness import Witness

Place = tuple[str, int]
NEVER = float("inf")


@dataclass(slots=True)
class Commit:
    """One attempt to move a position."""

    value: int
    number: int
    """The generation or epoch it was made under."""
    asked_at: float
    answered_at: float = NEVER
    is_acknowledged: bool = False
    is_refused: bool = False


@dataclass(slots=True)
class OffsetsChecker:
    """The positions of one group."""

    world: Witness
    group: str
    commits: dict[Place, list[Commit]] = field(default_factory=dict)
    by_value: dict[int, Commit] = field(default_factory=dict)
    _values: int = 0

    def asks(self, place: Place, number: int) -> Commit:
        """A commit is about to be sent; its value is the position to send."""
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
        """Somebody asked for the position and was told `value` (-1: there is none)."""
        known = self.by_value.get(value)
        if known is None and value != -1:
            self._violate("invented", place, f"{value} was never committed")
            return
        if known is not None and known.is_refused:
            self._violate("fencing", place, f"{value} counts, but was refused")
            return
        for later in self._settled(place, asked_at):
            if known is None:
                self._violate("lost-commit", place, f"{later.value} is gone: nothing is committed")
            elif known is later:
                continue
            elif known.number < later.number:
                self._violate(
                    "fencing",
                    place,
                    f"{value} of generation {known.number} counts over {later.value} "
                    f"of generation {later.number}",
                )
            elif later.asked_at > known.answered_at:
                name = "lost-commit" if known.is_acknowledged else "regression"
                self._violate(name, place, f"{value} is read after {later.value} was acknowledged")

    def _settled(self, place: Place, asked_at: float) -> Iterable[Commit]:
        """The commits that were acknowledged before `asked_at`."""
        return [
            commit
            for commit in self.commits.get(place, ())
            if commit.is_acknowledged and commit.answered_at < asked_at
        ]

    def _violate(self, name: str, place: Place, text: str) -> None:
        self.world.violate(name, f"group {self.group}, {place[0]}-{place[1]}: {text}")
