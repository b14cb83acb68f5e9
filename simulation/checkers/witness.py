"""What a checker needs of the world it watches: its time, and somebody to tell."""

from typing import Protocol


class Witness(Protocol):
    """`simulation.world.World`, or a stage in a test."""

    def now(self) -> float:
        """Seconds of simulated time."""
        ...

    def violate(self, name: str, text: str) -> None:
        """A promise was broken: `name` says which, `text` how."""
        ...

    def reached(self, point: str) -> None:
        """A situation that runs are meant to get into."""
        ...
