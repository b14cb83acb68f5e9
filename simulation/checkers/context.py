"""Interface of checkers to a run: its time, and reports of violations."""

from typing import Protocol


class CheckerContext(Protocol):
    """Implemented by `simulation.world.World`, and by fakes in tests."""

    def now(self) -> float:
        """Simulated time in seconds."""
        ...

    def violate(self, name: str, text: str) -> None:
        """Reports a violation of the invariant `name`."""
        ...

    def reached(self, point: str) -> None:
        """Counts a situation that runs should reach."""
        ...
