"""Results of simulated runs: the first violation, and counts of operations, faults and points.

Results mean nothing without the number of faults, so `Results` counts seeds, simulated time,
requests by name, faults by kind, and points: rare situations that runs should reach. A point that
many seeds never reach is a gap in the workload.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field


class Violation(AssertionError):
    """Violated invariant; the first word of the message is its name."""

    journal: tuple[str, ...] = ()
    """Last events before the violation."""


@dataclass(slots=True)
class Results:
    """Counts of one run, or sums of many."""

    seeds: int = 0
    simulated_s: float = 0.0
    callbacks: int = 0
    disk_operations: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    """Requests sent by clients, by name."""
    faults: Counter[str] = field(default_factory=Counter)
    """Faults by kind."""
    points: Counter[str] = field(default_factory=Counter)
    """Reached situations, including every error code: `Heartbeat ILLEGAL_GENERATION`."""

    def add(self, other: "Results") -> None:
        self.seeds += other.seeds
        self.simulated_s += other.simulated_s
        self.callbacks += other.callbacks
        self.disk_operations += other.disk_operations
        self.operations.update(other.operations)
        self.faults.update(other.faults)
        self.points.update(other.points)

    def missing(self, points: Iterable[str]) -> list[str]:
        """Points that were never reached."""
        return [point for point in points if not self.points[point]]

    def report(self, points: Iterable[str] = ()) -> str:
        """Human-readable report."""
        operations, faults = self.operations.total(), self.faults.total()
        lines = [
            f"{self.seeds} seeds, {self.simulated_s / 3600:.2f} simulated hours, "
            f"{operations} operations, {faults} faults, {self.disk_operations} disk operations, "
            f"{self.callbacks} callbacks",
            "faults: " + _list(self.faults),
            "operations: " + _list(self.operations),
        ]
        never = self.missing(points)
        lines.append("never reached: " + (", ".join(never) if never else "nothing"))
        return "\n".join(lines)


def _list(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"
