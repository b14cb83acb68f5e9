"""Fake context of checkers: a settable time, and the reported violations."""


class FakeContext:
    def __init__(self) -> None:
        self.time = 0.0
        self.found: list[str] = []

    def now(self) -> float:
        return self.time

    def at(self, time: float) -> None:
        self.time = time

    def violate(self, name: str, text: str) -> None:
        self.found.append(name)

    def reached(self, point: str) -> None:
        pass
