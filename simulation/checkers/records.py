"""Checker of idempotent producers' records against the final log.

Each record has a unique value. Violations (RELIABILITY, 1.3):

- lost-write: an acknowledged record is not at the offset it was acknowledged at;
- duplicate: a value is in the log twice;
- inconsistent-offsets: two acknowledgements for one offset;
- invented: a value that was never sent.
"""

from dataclasses import dataclass, field

from simulation.checkers.context import CheckerContext

Place = tuple[str, int]


@dataclass(slots=True)
class RecordsChecker:
    """All records sent outside of transactions."""

    world: CheckerContext
    sent: dict[bytes, Place] = field(default_factory=dict)
    acknowledged: dict[tuple[Place, int], bytes] = field(default_factory=dict)

    def sends(self, place: Place, value: bytes) -> None:
        self.sent[value] = place

    def acknowledge(self, place: Place, offset: int, value: bytes) -> None:
        known = self.acknowledged.setdefault((place, offset), value)
        if known != value:
            self._violate("inconsistent-offsets", f"{known!r} and {value!r} at {place} {offset}")

    def check(self, final: dict[Place, list[tuple[int, bytes]]]) -> None:
        """Checks all records against `final`, the final content of the logs."""
        places: dict[bytes, tuple[Place, int]] = {}
        for place, rows in final.items():
            for offset, value in rows:
                if self.sent.get(value) != place:
                    self._violate("invented", f"{value!r} at {place} {offset}")
                first = places.setdefault(value, (place, offset))
                if first != (place, offset):
                    self._violate("duplicate", f"{value!r} at {first} and at {place} {offset}")
        for (place, offset), value in self.acknowledged.items():
            if places.get(value) != (place, offset):
                self._violate("lost-write", f"{value!r}, acknowledged at {place} {offset}")

    def _violate(self, name: str, text: str) -> None:
        self.world.violate(name, text)
