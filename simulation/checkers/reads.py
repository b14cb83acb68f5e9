"""What readers of a log are given while the cluster is in trouble, and what they were given before.

For partitions without transactions, whose offsets have no gaps. Named promises (RELIABILITY, 1.3):

- inconsistent-offsets: two values at one place, whoever saw them (ConsistentRead);
- poll-skip, nonmonotonic-poll: a reader jumps ahead or goes back;
- watermark: the end of the log, as clients are told, goes back although its leader is no older;
- lost-write: what somebody has read is not there in the end.
"""

from dataclasses import dataclass, field

from simulation.checkers.witness import Witness

Place = tuple[str, int]


@dataclass(slots=True)
class ReadsChecker:
    """What all readers of a run saw."""

    world: Witness
    seen: dict[tuple[Place, int], bytes] = field(default_factory=dict)
    positions: dict[tuple[str, Place], int] = field(default_factory=dict)
    """By reader and place: the next offset."""
    ends: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """By place: the leader epoch and the end that clients were told last."""

    def saw(self, reader: str, place: Place, offset: int, value: bytes) -> None:
        """A reader that began at 0 was given this."""
        known = self.seen.setdefault((place, offset), value)
        if known != value:
            text = f"{known!r} and {value!r} at {place} {offset}"
            self.world.violate("inconsistent-offsets", text)
        expected = self.positions.get((reader, place), 0)
        if offset != expected:
            name = "poll-skip" if offset > expected else "nonmonotonic-poll"
            self.world.violate(name, f"{reader} is given {place} {offset} after {expected - 1}")
        self.positions[reader, place] = offset + 1

    def floor(self, place: Place) -> tuple[int, int]:
        """What an answer to a question asked from now on is measured by."""
        return self.ends.get(place, (-1, 0))

    def told(self, place: Place, epoch: int, end: int, floor: tuple[int, int]) -> None:
        """A leader in `epoch` says where the log ends. Leaders that were replaced may be late."""
        known_epoch, known_end = floor
        if epoch < known_epoch:
            self.world.reached("old leader asked")
            return
        if end < known_end:
            text = f"{place} ends at {end} in epoch {epoch}, after {known_end} in {known_epoch}"
            self.world.violate("watermark", text)
        self.ends[place] = max(self.floor(place), (epoch, end))

    def check(self, final: dict[Place, list[tuple[int, bytes]]]) -> None:
        """`final` is all there is to read."""
        present = {
            (place, offset): value for place, rows in final.items() for offset, value in rows
        }
        for (place, offset), value in self.seen.items():
            if present.get((place, offset)) != value:
                text = f"{value!r} was read at {place} {offset} and is gone"
                self.world.violate("lost-write", text)
