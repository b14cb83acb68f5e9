"""Checker of consumers' reads during faults: consistent with each other and with the final log.

For partitions without transactions, whose offsets have no gaps. Violations (RELIABILITY, 1.3):

- inconsistent-offsets: two values at one offset, read by any consumers (ConsistentRead);
- poll-skip, nonmonotonic-poll: a consumer skips offsets or goes back;
- watermark: the end offset in a reply decreases although its leader epoch does not;
- lost-write: a record that was read is not in the final log.
"""

from dataclasses import dataclass, field

from simulation.checkers.context import CheckerContext

Place = tuple[str, int]


@dataclass(slots=True)
class ReadsChecker:
    """Reads of all consumers of a run."""

    world: CheckerContext
    seen: dict[tuple[Place, int], bytes] = field(default_factory=dict)
    positions: dict[tuple[str, Place], int] = field(default_factory=dict)
    """Next offset by consumer and partition."""
    ends: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """Highest leader epoch and end offset in a reply, by partition."""

    def note_read(self, reader: str, place: Place, offset: int, value: bytes) -> None:
        """Checks a record read by a consumer that started at offset 0."""
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
        """Lower bound for replies to requests sent from now on."""
        return self.ends.get(place, (-1, 0))

    def note_end(self, place: Place, epoch: int, end: int, floor: tuple[int, int]) -> None:
        """Checks the end offset in a leader's reply. Replaced leaders may be behind."""
        known_epoch, known_end = floor
        if epoch < known_epoch:
            self.world.reached("old leader asked")
            return
        if end < known_end:
            text = f"{place} ends at {end} in epoch {epoch}, after {known_end} in {known_epoch}"
            self.world.violate("watermark", text)
        self.ends[place] = max(self.floor(place), (epoch, end))

    def check(self, final: dict[Place, list[tuple[int, bytes]]]) -> None:
        """Checks all reads against `final`, the final content of the logs."""
        present = {
            (place, offset): value for place, rows in final.items() for offset, value in rows
        }
        for (place, offset), value in self.seen.items():
            if present.get((place, offset)) != value:
                text = f"{value!r} was read at {place} {offset} and is lost"
                self.world.violate("lost-write", text)
